"""Reads the header of a GGUF file: its metadata and where its tensors lie.

Own code rather than `gguf.GGUFReader`: that takes two seconds for a vocabulary of 49,152, and cannot name the tensor at
which a truncated file ends. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotlab_kernels.shape import LlamaShape, ModelFileError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4


@dataclass(frozen=True)
class GGUFTensor:
    """One tensor: its shape outermost dimension first, its ggml type number, its first byte in the file."""

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
        if not isinstance(value, kind):
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


def gguf_shape(header: GGUFHeader) -> LlamaShape:
    """The shape that a GGUF file of the llama architecture describes; ModelFileError if it is another or incomplete."""
    architecture = header.get("general.architecture", str)
    if architecture != "llama":
        raise ModelFileError(f"{header.path}: architecture {architecture!r} is not supported; supported: 'llama'")
    _refuse_unsupported(header)
    heads, hidden = header.get("llama.attention.head_count", int), header.get("llama.embedding_length", int)
    head_dim = header.get("llama.attention.key_length", int, hidden // max(heads, 1))
    if header.get("llama.rope.dimension_count", int, head_dim) != head_dim:
        raise ModelFileError(f"{header.path}: llama.rope.dimension_count must be the head size, {head_dim}")
    try:
        return LlamaShape(
            vocab=len(header.get("tokenizer.ggml.tokens", list)),
            hidden=hidden,
            layers=header.get("llama.block_count", int),
            heads=heads,
            kv_heads=header.get("llama.attention.head_count_kv", int, heads),
            head_dim=head_dim,
            intermediate=header.get("llama.feed_forward_length", int),
            rope_theta=_shortest(header.get("llama.rope.freq_base", float, 10_000.0)),
            norm_eps=_shortest(header.get("llama.attention.layer_norm_rms_epsilon", float)),
            max_context=header.get("llama.context_length", int),
            tied="output.weight" not in header.tensors,
        )
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{header.path}: {error}") from None


def _shortest(value: float) -> float:
    """The decimal number that was meant: 1e-5 went through fp32 and came back as 9.99999974e-06."""
    return float(f"{value:.7g}")


def _refuse_unsupported(header: GGUFHeader) -> None:
    scaling = header.fields.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in header.tensors:
        raise ModelFileError(f"{header.path}: rope_scaling {scaling!r} is not supported yet; supported: none")
    if header.fields.get("llama.expert_count"):
        raise ModelFileError(f"{header.path}: a mixture of experts (llama.expert_count) is not supported")


def _parse(path: Path, cursor: _Cursor) -> GGUFHeader:
    version = cursor.take("I")
    if version not in (2, 3):
        raise ModelFileError(f"{path}: GGUF version {version} is not supported; supported: 2, 3")
    tensor_count, field_count = cursor.take("Q"), cursor.take("Q")
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        key = cursor.string()
        fields[key] = cursor.value(cursor.take("I"))
    places: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(tensor_count):
        name, dims = cursor.string(), cursor.take("I")
        if dims > _MAX_DIMS:
            raise ModelFileError(f"{path}: tensor {name} has {dims} dimensions; the format allows {_MAX_DIMS}")
        inner_first = tuple(cursor.take("Q") for _ in range(dims))
        places[name] = (inner_first[::-1], cursor.take("I"), cursor.take("Q"))
    alignment = fields.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ModelFileError(f"{path}: general.alignment is {alignment!r}, not a number of bytes")
    start = -(-cursor.at // alignment) * alignment
    tensors = {name: GGUFTensor(shape, kind, start + offset) for name, (shape, kind, offset) in places.items()}
    return GGUFHeader(path, fields, tensors)
