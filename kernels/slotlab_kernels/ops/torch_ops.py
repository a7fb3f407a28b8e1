"""The reference implementation of every op, in plain torch, on any device.

On a CPU a row's result does not depend on the batch with 1 to 3 threads. With 5 it does (measured): where a thread's
share ends, torch leaves its vectorised exp for libm's, which rounds otherwise. The numba ops have no such limit.
"""

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

PADS_ROWS = True  # BLAS has other kernels for one row, or two or three in fp32, which round in another way
KEY_TILE = 64
"""Keys per step of the attention loop: a fixed tiling from position 0, so that no other row can change a sum's order."""


def pack(weight: torch.Tensor) -> torch.Tensor:
    """See Pack: torch reads it as it is."""
    return weight


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False) -> torch.Tensor:
    """See Linear."""
    out = F.linear(x, weight, bias)
    return out.float() if wide else out


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
        score_THGK = q_THGD @ k_THKD.mT
        score_THGK.masked_fill_(~valid_TK[:, None, None], -torch.inf)
        new_THG = torch.maximum(best_THG, score_THGK.amax(-1))
        base_THG = new_THG.masked_fill(new_THG == -torch.inf, 0.0)  # nothing seen yet: exp(-inf - -inf) is NaN
        weight_THGK = torch.exp(score_THGK - base_THG[..., None])
        decay_THG = torch.exp(best_THG - base_THG)
        sum_THG = sum_THG * decay_THG + weight_THGK.sum(-1)
        out_THGD = out_THGD * decay_THG[..., None] + weight_THGK @ v_THKD
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
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See AddRMSNorm."""
    residual += x
    return rms_norm(residual, weight, eps)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    gate, up = gate_up.float().chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """See Sample."""
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
