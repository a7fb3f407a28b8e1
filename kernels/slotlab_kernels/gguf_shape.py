"""The shape that the header of a GGUF file describes."""

from dataclasses import dataclass
from typing import Any, TypeVar

from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.gguf_tensor import read_tensor
from slotlab_kernels.rope import LinearRope, RopeFactors, RopeScaling, YarnRope
from slotlab_kernels.shape import LlamaShape, ModelFileError

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Those that the one forward pass computes; Mistral's files are `llama`."""

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor that stretches RoPE, where there is one: Llama 3.1 and later."""

_KNOWN = {
    *("vocab_size", "context_length", "embedding_length", "block_count", "feed_forward_length", "expert_count"),
    *("expert_used_count", "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "attention.sliding_window", "rope.dimension_count", "rope.freq_base"),
    *("rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor"),
    "rope.scaling.finetuned",
}
"""The fields of an architecture that we obey, or that say nothing about what it computes."""

T = TypeVar("T")


@dataclass(frozen=True)
class _Fields:
    """The fields of one architecture: `fields.get("block_count", int)` is that of `llama.block_count`."""

    header: GGUFHeader
    architecture: str

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        value: T = self.header.get(f"{self.architecture}.{key}", kind, default)
        return value

    def has(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.header.fields


def gguf_shape(header: GGUFHeader) -> LlamaShape:
    """The shape of the model in a GGUF file; ModelFileError if its architecture is not supported or incomplete."""
    architecture = header.get("general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            f"{header.path}: architecture {architecture!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    fields = _Fields(header, architecture)
    try:
        return _shape(fields)
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{header.path}: {error}") from None


def _shape(fields: _Fields) -> LlamaShape:
    header = fields.header
    heads, hidden = fields.get("attention.head_count", int), fields.get("embedding_length", int)
    head_dim = fields.get("attention.key_length", int, hidden // max(heads, 1))
    _refuse_unsupported(fields, head_dim)
    return LlamaShape(
        vocab=len(header.get("tokenizer.ggml.tokens", list)),
        hidden=hidden,
        layers=fields.get("block_count", int),
        heads=heads,
        kv_heads=fields.get("attention.head_count_kv", int, heads),
        head_dim=head_dim,
        intermediate=fields.get("feed_forward_length", int),
        rope_theta=_shortest(fields.get("rope.freq_base", float, 10_000.0)),
        norm_eps=_shortest(fields.get("attention.layer_norm_rms_epsilon", float)),
        max_context=fields.get("context_length", int),
        tied="output.weight" not in header.tensors,
        qkv_bias=fields.architecture == "qwen2",
        qk_norm=fields.architecture == "qwen3",
        window=fields.get("attention.sliding_window", int, 0),
        rope_scaling=_scaling(fields, head_dim),
    )


def _scaling(fields: _Fields, head_dim: int) -> RopeScaling | None:
    kind: Any = fields.get("rope.scaling.type", str, "none")
    factors = ROPE_FACTORS in fields.header.tensors
    if kind == "none" and factors:
        values = read_tensor(fields.header, ROPE_FACTORS, (head_dim // 2,)).tolist()
        return RopeFactors(tuple(values))
    if factors or kind not in ("none", "linear", "yarn"):
        also = f" with {ROPE_FACTORS}" if factors else ""
        raise ValueError(f"rope_scaling {kind!r}{also} is not supported; supported: none, linear, yarn")
    if kind == "none":
        return None
    factor = _shortest(fields.get("rope.scaling.factor", float))
    if kind == "linear":
        return LinearRope(factor)
    yarn = YarnRope(factor, fields.get("rope.scaling.original_context_length", int))
    extra = fields.get("rope.scaling.attn_factor", float, 1.0)  # on top of YaRN's own
    return YarnRope(yarn.factor, yarn.original_max_position_embeddings, yarn.amplitude * extra)


def _shortest(value: float) -> float:
    """The decimal number that was meant: 1e-5 went through fp32 and came back as 9.99999974e-06."""
    return float(f"{value:.7g}")


def _refuse_unsupported(fields: _Fields, head_dim: int) -> None:
    """ValueError for what the one forward pass does not compute."""
    name = fields.architecture
    for key in ("rope.dimension_count", "attention.value_length"):
        if fields.get(key, int, head_dim) != head_dim:
            raise ValueError(f"{name}.{key} must be the head size, {head_dim}")
    if name != "llama" and fields.get("attention.sliding_window", int, 0):  # theirs is for some layers only
        raise ValueError(f"{name}.attention.sliding_window is not supported")
    if fields.has("expert_count") and fields.get("expert_count", int):
        raise ValueError(f"a mixture of experts ({name}.expert_count) is not supported")
    for key in fields.header.fields:
        if key.startswith(f"{name}.") and key.removeprefix(f"{name}.") not in _KNOWN:
            raise ValueError(f"{key} is not supported")
