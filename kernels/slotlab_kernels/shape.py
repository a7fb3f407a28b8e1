"""The shape of a Llama-family decoder: everything about a model but its weights."""

from dataclasses import dataclass
from math import inf

from slotlab_kernels.rope import RopeScaling

_MOST_POSITIONS = 2**24


class ModelFileError(ValueError):
    """A model file that is missing, broken or not supported; the message is one line that names the file and the part."""


@dataclass(frozen=True)
class LlamaShape:
    """Sizes and constants of a decoder of the Llama family (grouped-query attention, RoPE, RMSNorm, SwiGLU).

    `max_context` is in tokens; `tied` means that the lm head is the embedding. What members of the family add: `qkv_bias`,
    biases of query, key and value (Qwen2); `qk_norm`, an RMSNorm of each head of query and key before RoPE (Qwen3); `window`,
    the tokens that one attends to, itself included, 0 for all (Mistral). Raises ValueError where the sizes do not fit.
    """

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    max_context: int = 2048
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    window: int = 0
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        for name in ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "max_context"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even, not {self.head_dim}: RoPE turns pairs")
        if self.max_context > _MOST_POSITIONS:
            raise ValueError(f"max_context must be at most {_MOST_POSITIONS}, not {self.max_context}: positions are fp32")
        if not 1 < self.rope_theta < inf:
            raise ValueError(f"rope_theta must be a finite number above 1, not {self.rope_theta}")
        if not 0 < self.norm_eps < inf:
            raise ValueError(f"norm_eps must be a finite number above 0, not {self.norm_eps}")
        if not isinstance(self.window, int) or self.window < 0:
            raise ValueError(f"window must be a whole number of tokens, or 0 for no window, not {self.window!r}")

    @property
    def qkv_heads(self) -> int:
        """Heads in the fused projection: query, then key, then value."""
        return self.heads + 2 * self.kv_heads


TINY = LlamaShape(vocab=512, hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=128, max_context=2048)
"""A model for tests: one step takes well under a millisecond."""

SMOLLM2_135M = LlamaShape(
    vocab=49152,
    hidden=576,
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate=1536,
    rope_theta=100_000.0,
    max_context=8192,
)
"""SmolLM2-135M (Allal et al., 2025), the demo model."""
