"""Reads the header of a GGUF file: its metadata and where its tensors lie.

Own code rather than `gguf.GGUFReader`: that takes two seconds for a vocabulary of 49,152, and cannot name the tensor at
which a truncated file ends. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotlab_kernels.shape import ModelFileError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor: its file, its shape outermost dimension first, its ggml type number, its first byte in the file."""

    path: Path
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class GGUFHeader:
    """All metadata of a GGUF file and the places of its tensors."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, GGUFTensor]

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """The field `key`, which must be of this kind; ModelFileError if it is not, or missing without a default."""
        value = self.fields.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            problem = "has no field" if value is None else f"is not a {kind.__name__} in field"
            raise ModelFileError(f"{self.path}: {problem} {key}")
        return value


@dataclass
class _Cursor:
    """Takes values from the front of the bytes of a file."""

    data: mmap.mmap
    at: int = field(default=0)

    def take(self, format: str) -> Any:
        (value,) = struct.unpack_from("<" + format, self.data, self.at)
        self.at += struct.calcsize("<" + format)
        return value

    def string(self) -> str:
        start = self.at + 8
        end = start + self.take("Q")
        if end > len(self.data):
            raise struct.error("a string runs past the end")
        self.at = end
        return self.data[start:end].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, length = self.take("I"), self.take("Q")
            if length > len(self.data) - self.at:
                raise struct.error("an array runs past the end")
            return [self.value(inner) for _ in range(length)]
        return self.take(_SCALARS[kind])


def read_gguf_header(path: Path) -> GGUFHeader:
    """Reads all but the tensors' data. ModelFileError if the file is missing, not GGUF, or ends within its header."""
    try:
        if not path.stat().st_size:
            raise ModelFileError(f"{path}: is empty")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"GGUF":
                raise ModelFileError(f"{path}: is not a GGUF file")
            return _parse(path, _Cursor(data, at=4))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (struct.error, KeyError, UnicodeDecodeError):
        raise ModelFileError(f"{path}: the GGUF header is truncated or damaged") from None


def _parse(path: Path, cursor: _Cursor) -> GGUFHeader:
    version = cursor.take("I")
    if version not in (2, 3):
        raise ModelFileError(f"{path}: GGUF version {version} is not supported; supported: 2, 3")
    tensor_count, field_count = cursor.take("Q"), cursor.take("Q")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = cursor.string()
        if key in fields:
            raise ModelFileError(f"{path}: field {key} is there twice")
        fields[key] = cursor.value(cursor.take("I"))
    places: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensor_count):
        name, dims = cursor.string(), cursor.take("I")
        if dims > _MAX_DIMS:
            raise ModelFileError(f"{path}: tensor {name} has {dims} dimensions; the format allows {_MAX_DIMS}")
        if name in places:
            raise ModelFileError(f"{path}: tensor {name} is there twice")
        inner_first = tuple(cursor.take("Q") for _ in range(dims))
        places[name] = (inner_first[::-1], cursor.take("I"), cursor.take("Q"))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ModelFileError(f"{path}: general.alignment is {alignment!r}, not a number of bytes")
    start = -(-cursor.at // alignment) * alignment
    tensors = {name: GGUFTensor(path, shape, kind, start + offset) for name, (shape, kind, offset) in places.items()}
    return GGUFHeader(path, fields, tensors)
