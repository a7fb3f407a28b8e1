"""A GGUF model in parts is read whole or refused: a part is never taken for a model."""

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import gguf
import pytest
import torch

from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.gguf_parts import read_gguf
from slotlab_kernels.gguf_weights import load_gguf
from slotlab_kernels.shape import TINY, ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer

files = SimpleNamespace(**run_path(str(Path(__file__).parent / "gguf_files.py")))
CPU = torch.device("cpu")


def write_parts(folder: Path) -> list[Path]:
    """The 20 tensors of TINY in three parts. The first one alone looks like a model whose head is tied, with a layer less."""
    files.write_gguf(folder / "model.gguf", TINY, tensors_per_part=9)
    return sorted(folder.glob("*.gguf"))


def message(path: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        load_gguf(path, CPU, torch.float32)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_all_parts_are_read(tmp_path: Path) -> None:
    whole = files.write_gguf(tmp_path / "whole.gguf", TINY)
    first, *others = write_parts(tmp_path)[:3]
    assert [path.name for path in (first, *others)] == [f"model-0000{at}-of-00003.gguf" for at in (1, 2, 3)]
    loaded = load_gguf(first, CPU, torch.float32)
    assert loaded.shape == whole.shape == read_shape(first)
    for name, tensor in files.tensors_of(whole).items():
        assert torch.equal(files.tensors_of(loaded)[name], tensor), name
    assert load_tokenizer(first).encode("abc")


def test_a_part_that_is_not_the_first_or_has_lost_its_name_is_refused(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    for number, path in ((2, second), (3, third)):
        assert message(path) == f"{path}: is part {number} of 3; choose the first, {first.name}"
    alone = first.rename(tmp_path / "model.gguf")
    assert message(alone) == f"{alone}: is part 1 of 3; its name must end with -00001-of-00003.gguf"


def test_a_part_that_is_missing_or_of_another_model_is_named(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    content = second.read_bytes()
    second.write_bytes(third.read_bytes())
    assert message(first) == f"{second}: does not call itself part 2 of 3"
    files.write_gguf(second, TINY)
    assert message(first) == f"{second}: has no field split.no"
    second.unlink()
    assert message(first) == f"{second}: cannot be read (No such file or directory)"
    second.write_bytes(content[:-200])
    assert message(first).startswith(f"{second}: is truncated within tensor ")


def write(path: Path, names: list[str], part: int, **fields: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in ({"no": part, "count": 2} | fields).items():
        writer.add_uint16(f"split.{key.replace('_', '.')}", value)
    for name in names:
        writer.add_tensor(name, torch.zeros(2).numpy())
    files.close(writer)
    return path


def test_parts_that_share_a_tensor_or_are_too_few_tensors_are_refused(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{at}-of-00002.gguf" for at in (1, 2))
    write(first, ["a", "b"], 0, tensors_count=4)
    write(second, ["b"], 1)
    with pytest.raises(ModelFileError, match=f"{second.name}: tensor b is also in {first.name}"):
        read_gguf(first)
    write(second, ["c"], 1)
    with pytest.raises(ModelFileError, match=f"{first.name}: its 2 parts have 3 tensors, not 4"):
        read_gguf(first)
    write(second, ["c", "d"], 1)
    assert sorted(read_gguf(first).tensors) == ["a", "b", "c", "d"]


def test_what_a_file_says_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", ["aa", "bb"], 0, count=1)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x02\0\0\0\0\0\0\0bb", b"\x02\0\0\0\0\0\0\0aa"))
    with pytest.raises(ModelFileError, match=r"m\.gguf: tensor aa is there twice"):
        read_gguf(path)
    write(path, [], 0, count=1, ab=3, ac=4)
    path.write_bytes(path.read_bytes().replace(b"split.ac", b"split.ab"))
    with pytest.raises(ModelFileError, match=r"m\.gguf: field split\.ab is there twice"):
        read_gguf(path)
