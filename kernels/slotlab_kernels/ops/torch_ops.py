"""The reference implementation of every op, in plain torch, on any device.

A row's result does not depend on the batch by construction: everything is made of additions, multiplications, divisions and
square roots of single elements, which IEEE 754 rounds in one way wherever an element stands and whoever computes it. What a
library may round as it likes is left out: sums along a dim, products of matrices, exp (torch leaves its vectorised exp for
another where a thread's share ends). Two ops need such things. `linear` multiplies tiles of one shape (see `in_tiles`; on
CUDA, whose speed is measured, only if `make_deterministic` asks for it); `sample` takes one row at a time.
"""

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops.tiles import in_tiles
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

ROWS = 8
"""Rows of every matrix product on a CPU: few, because a decode of one row pays for all."""
KEY_TILE = 64
"""Keys per step of the attention loop: a fixed tiling from position 0, so that no other row can change a sum's order."""


def pack(weight: torch.Tensor) -> torch.Tensor:
    """See Pack: torch reads it as it is."""
    return weight


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False) -> torch.Tensor:
    """See Linear."""
    return _linear_in_tiles(x, weight, bias, wide) if x.device.type == "cpu" else _linear(x, weight, bias, wide)


def _linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False
) -> torch.Tensor:  # fmt: skip
    out = F.linear(x, weight, bias)
    return out.float() if wide else out


_linear_in_tiles = in_tiles(_linear, ROWS)


def rope_store(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:  # fmt: skip
    """See RopeStore."""
    q.copy_(_turned(q, cos, sin))
    kept = slots >= 0
    where = slots[kept]
    cache[0].flatten(0, 1)[where] = _turned(k, cos, sin)[kept].to(cache.dtype)
    cache[1].flatten(0, 1)[where] = v[kept]


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    a, b = x[..., :half].float(), x[..., half:].float()
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
    """See PagedAttention. Online softmax over tiles of keys (Milakov & Gimelshein, 2018), all tokens at once."""
    tokens, heads, dim = q.shape
    kv_heads = cache.shape[3]
    q_THGD = q.float().view(tokens, kv_heads, heads // kv_heads, dim) * dim**-0.5
    best_THG = q_THGD.new_full(q_THGD.shape[:3], -torch.inf)
    sum_THG = torch.zeros_like(best_THG)
    out_THGD = torch.zeros_like(q_THGD)
    for start in range(0, batch.max_context, KEY_TILE):
        k_THKD, v_THKD, valid_TK = _tile(cache, batch, start, window)
        masked_TK = ~valid_TK[:, None, None]
        score_THGK = _sum(q_THGD[:, :, :, None] * k_THKD[:, :, None]).masked_fill_(masked_TK, -torch.inf)
        new_THG = torch.maximum(best_THG, score_THGK.amax(-1))
        base_THG = new_THG.masked_fill(new_THG == -torch.inf, 0.0)  # nothing seen yet: exp(-inf - -inf) is NaN
        weight_THGK = _exp(score_THGK - base_THG[..., None]).masked_fill_(masked_TK, 0.0)
        decay_THG = _exp(best_THG - base_THG)
        sum_THG = sum_THG * decay_THG + _sum(weight_THGK)
        out_THGD = out_THGD * decay_THG[..., None] + _sum(weight_THGK[:, :, :, None] * v_THKD.mT[:, :, None])
        best_THG = new_THG
    out_THGD /= sum_THG.masked_fill(sum_THG == 0.0, 1.0)[..., None]
    return out_THGD.view(tokens, heads, dim).to(q.dtype)


def _tile(
    cache: torch.Tensor, batch: Batch, start: int, window: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """K and V [T, Hk, K, D] in fp32 at the K positions from `start`, V zero where not attended to, and where that is."""
    block_size = cache.shape[2]
    at_K = torch.arange(start, start + KEY_TILE, device=cache.device)  # never cut, or its width would depend on the batch
    context_T1 = batch.context_T[:, None]
    valid_TK = at_K < context_T1
    if window:
        valid_TK &= at_K >= context_T1 - window
    block_K = (at_K // block_size).clamp(max=batch.tables_SB.shape[1] - 1)
    slot_TK = batch.tables_SB[:, block_K][batch.row_T] * block_size + at_K % block_size
    heads_H = torch.arange(cache.shape[3], device=cache.device)
    where_THK = slot_TK[:, None], heads_H[:, None]
    k, v = (half.flatten(0, 1)[where_THK].float() for half in cache)
    # what lies past the context may be NaN, which a weight of zero does not remove
    return k, v.masked_fill_(~valid_TK[:, None, :, None], 0.0), valid_TK


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See RMSNorm."""
    wide = x.float()
    mean = _sum(wide * wide)[..., None] / x.shape[-1]
    return (wide * (1.0 / torch.sqrt(mean + eps)) * weight.float()).to(x.dtype)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See AddRMSNorm."""
    residual += x
    return rms_norm(residual, weight, eps)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    gate, up = gate_up.float().chunk(2, -1)
    return (gate / (1.0 + _exp(-gate)) * up).to(gate_up.dtype)


def _sum(x: torch.Tensor) -> torch.Tensor:
    """The sum over the last dim, by adding its second half to its first until one is left."""
    while (width := x.shape[-1]) > 1:
        folded, half = x[..., : -(-width // 2)].clone(), width // 2
        folded[..., :half] += x[..., width - half :]
        x = folded
    return x[..., 0]


def _exp(x: torch.Tensor) -> torch.Tensor:
    """e^x in fp32, 2e-7 relative, clamped to |x| <= 87; NaN stays NaN. As in `numba_math`, where the constants are explained."""
    x = x.clamp(-87.0, 87.0)
    n = torch.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 0.693359375
    r = r - n * -2.12194440e-4
    p = torch.full_like(x, 1 / 5040)
    for factorial in (720, 120, 24, 6, 2, 1, 1):
        p = p * r + 1 / factorial
    return p * ((n.int() + 127) << 23).view(torch.float32)  # 2^n


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """See Sample."""
    rows = zip(*(torch.split(x, 1) for x in (logits, temperature, keys, top_k, top_p)), strict=True)
    return torch.cat([keys[:0], *(_draw(*row) for row in rows)])


def _draw(
    logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    logits = logits.masked_fill(logits.isnan(), -torch.inf)
    if bool(((top_k > 0) | (top_p < 1.0)).any()):
        logits = logits.masked_fill(~_head(logits, temperature, top_k, top_p), -torch.inf)
    noise_RV = -torch.log(-torch.log(_uniform(keys, logits.shape[1])))
    return (logits + temperature[:, None] * noise_RV).argmax(-1)


def _head(
    logits_RV: torch.Tensor, temperature_R: torch.Tensor, top_k_R: torch.Tensor, top_p_R: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """[R, V]: the entries that may be drawn, in fp64, so that implementations agree about where the head ends."""
    sorted_RV, order_RV = logits_RV.sort(dim=-1, descending=True, stable=True)
    kept_RV = (top_k_R[:, None] <= 0) | (torch.arange(logits_RV.shape[1], device=logits_RV.device) < top_k_R[:, None])
    warm_R = torch.where(temperature_R > 0.0, temperature_R, 1.0).double()
    weight_RV = ((sorted_RV - sorted_RV[:, :1]).double() / warm_R[:, None]).exp() * kept_RV
    before_RV = weight_RV.cumsum(-1) - weight_RV
    kept_RV &= (top_p_R[:, None] >= 1.0) | (before_RV < top_p_R[:, None].double() * weight_RV.sum(-1, keepdim=True))
    kept_RV[:, 0] = True
    return torch.zeros_like(kept_RV).scatter_(1, order_RV, kept_RV)


def gather_blocks(all: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """See GatherBlocks."""
    return all.index_select(2, blocks)


def scatter_blocks(kept: torch.Tensor, all: torch.Tensor, blocks: torch.Tensor) -> None:
    """See ScatterBlocks."""
    all.index_copy_(2, blocks, kept)


def _uniform(keys_R: torch.Tensor, vocab: int) -> torch.Tensor:
    """[R, V] numbers inside (0, 1), on a grid of 2^-24: SplitMix64 of (key, entry). int64 wraps around as uint64 does."""
    x = keys_R[:, None] + torch.arange(1, vocab + 1, device=keys_R.device) * _signed(GOLDEN)
    x = (x ^ _shift(x, 30)) * _signed(MIX_1)
    x = (x ^ _shift(x, 27)) * _signed(MIX_2)
    x = x ^ _shift(x, 31)
    return unit(_shift(x, 40))


def unit(bits: torch.Tensor) -> torch.Tensor:
    """24 bits as a number inside (0, 1): the last one would be rounded to 1, where the noise is infinite."""
    return ((bits.float() + 0.5) * 2.0**-24).clamp(max=1.0 - 2.0**-24)


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right, which torch does not have for int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """The 64 bits of x as torch's int64 reads them."""
    return x - (1 << 64) if x >> 63 else x
