"""Loads the weights of a Hugging Face folder: safetensors, one file or several with an index."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from slotlab_kernels.hf_config import folder_shape, read_json
from slotlab_kernels.llama import Llama
from slotlab_kernels.rope import rope_periods
from slotlab_kernels.shape import LlamaShape, ModelFileError
from slotlab_kernels.weights import EMBEDDING, HEAD, build_llama

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_ROPE_TABLE = "rotary_emb.inv_freq"
"""Radians per position of each pair of a head: old checkpoints save what follows from their config."""


def load_folder(path: str | Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """The model in a folder of config.json and safetensors. ModelFileError names the file and tensor that are wrong."""
    folder = Path(path)
    shape, tensors = folder_shape(folder), _FolderTensors(folder)
    shape = _tie(shape, tensors)
    model = build_llama(shape, tensors.get, device, dtype)
    for name in tensors.unused():
        if not (name.endswith(_ROPE_TABLE) and _follows(tensors.read(name), shape)):
            raise ModelFileError(f"{tensors.places[name]}: tensor {name} is not known to this architecture")
    return model


def _tie(shape: LlamaShape, tensors: "_FolderTensors") -> LlamaShape:
    """As transformers does: a config that ties the lm head means the one in the file, where there is another."""
    if not shape.tied or HEAD not in tensors.places:
        return shape
    embedding, head = (tensors.get(name, (shape.vocab, shape.hidden)) for name in (EMBEDDING, HEAD))
    return replace(shape, tied=embedding.dtype == head.dtype and torch.equal(embedding, head))


def _follows(table_D: torch.Tensor, shape: LlamaShape) -> bool:
    """Whether a table is what the config says, with or without its scaling, but for rounding to 16 bits."""
    scalings = (None, shape.rope_scaling)
    tables = [1 / torch.tensor(rope_periods(shape.rope_theta, shape.head_dim, scaling)) for scaling in scalings]
    return any(table_D.shape == own.shape and torch.allclose(table_D.float(), own, rtol=0.01, atol=1e-7) for own in tables)


class _FolderTensors:
    """The tensors of all safetensors files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[Path, Any] = {}
        self.places = self._places()
        self.used: set[str] = set()

    def get(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        if name not in self.places:
            raise ModelFileError(f"{self.folder}: has no tensor {name}")
        tensor, path = self.read(name), self.places[name]
        if tuple(tensor.shape) != size:
            raise ModelFileError(f"{path}: tensor {name} has shape {list(tensor.shape)}, expected {list(size)}")
        if tensor.dtype not in _DTYPES:
            raise ModelFileError(f"{path}: tensor {name} is {tensor.dtype}; supported: float32, float16, bfloat16")
        self.used.add(name)
        return tensor

    def read(self, name: str) -> torch.Tensor:
        try:
            tensor: torch.Tensor = self._open(self.places[name]).get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{self.places[name]}: tensor {name} cannot be read ({error})") from None
        return tensor

    def unused(self) -> Iterator[str]:
        """Those that nobody asked for: of an architecture that the forward pass does not compute."""
        return iter(sorted(self.places.keys() - self.used))

    def _places(self) -> dict[str, Path]:
        single, index = self.folder / _SINGLE, self.folder / _INDEX
        if single.is_file():
            return dict.fromkeys(self._open(single).keys(), single)
        if not index.is_file():
            raise ModelFileError(f"{self.folder}: has neither {_SINGLE} nor {_INDEX}")
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
            raise ModelFileError(f"{index}: has no weight_map of tensors to files")
        places: dict[str, Path] = {}
        for path in sorted({self.folder / file for file in weight_map.values()}):
            for name in self._open(path).keys():  # noqa: SIM118 (not a dict)
                if name in places:
                    raise ModelFileError(f"{path}: tensor {name} is also in {places[name].name}")
                places[name] = path
        for name, file in weight_map.items():
            if places.get(name) != self.folder / file:
                raise ModelFileError(f"{index}: tensor {name} is not in {file}, which it names")
        return places

    def _open(self, path: Path) -> Any:
        if path not in self.files:
            try:
                self.files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path}: is not a readable safetensors file ({error})") from None
        return self.files[path]
