"""A GGUF model as one header, whether it lies in one file or in numbered parts (llama.cpp's gguf-split)."""

import re
from dataclasses import replace
from pathlib import Path

from slotlab_kernels.gguf_header import GGUFHeader, read_gguf_header
from slotlab_kernels.shape import ModelFileError

_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def read_gguf(path: Path) -> GGUFHeader:
    """The metadata of the first part, and the tensors of all. ModelFileError if `path` is another part, or one is missing."""
    first = read_gguf_header(path)
    count = first.get("split.count", int, 1)
    if count <= 1:
        return first
    number, name = first.get("split.no", int), _NUMBERED.fullmatch(path.name)
    if name is None or (int(name[2]), int(name[3])) != (number + 1, count):
        raise ModelFileError(
            f"{path}: is part {number + 1} of {count}; its name must end with -{number + 1:05}-of-{count:05}.gguf"
        )
    paths = [path.with_name(f"{name[1]}-{at + 1:05}-of-{count:05}.gguf") for at in range(count)]
    if number != 0:
        raise ModelFileError(f"{path}: is part {number + 1} of {count}; choose the first, {paths[0].name}")
    tensors = dict(first.tensors)
    for at, part in enumerate(map(read_gguf_header, paths[1:]), start=1):
        if (part.get("split.no", int), part.get("split.count", int)) != (at, count):
            raise ModelFileError(f"{part.path}: does not call itself part {at + 1} of {count}")
        for twice in sorted(tensors.keys() & part.tensors.keys()):
            raise ModelFileError(f"{part.path}: tensor {twice} is also in {tensors[twice].path.name}")
        tensors |= part.tensors
    if len(tensors) != first.get("split.tensors.count", int, len(tensors)):
        raise ModelFileError(f"{path}: its {count} parts have {len(tensors)} tensors, not {first.fields['split.tensors.count']}")
    return replace(first, tensors=tensors)
