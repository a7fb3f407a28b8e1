"""The reference implementation of every op, in plain torch, on any device.

On a CPU a row's result does not depend on the batch with 1 to 3 threads. With 5 it does (measured): where a thread's
share ends, torch leaves its vectorised exp for libm's, which rounds otherwise. The numba ops have no such limit.
"""

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

KEY_TILE = 64
"""Keys per step of the attention loop: a fixed tiling from position 0, so that no other row can change a sum's order."""


def store_kv(k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """See StoreKV."""
    kept = slots >= 0
    where = slots[kept]
    cache[0].flatten(0, 1)[where] = k[kept]
    cache[1].flatten(0, 1)[where] = v[kept]


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch) -> torch.Tensor:
    """See PagedAttention. Online softmax over tiles of keys (Milakov & Gimelshein, 2018), all tokens at once."""
    tokens, heads, dim = q.shape
    kv_heads = cache.shape[3]
    q_THGD = q.float().view(tokens, kv_heads, heads // kv_heads, dim) * dim**-0.5
    best_THG = q_THGD.new_full(q_THGD.shape[:3], -torch.inf)
    sum_THG = torch.zeros_like(best_THG)
    out_THGD = torch.zeros_like(q_THGD)
    for start in range(0, batch.max_context, KEY_TILE):
        k_THKD, v_THKD, valid_TK = _tile(cache, batch, start)
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


def _tile(cache: torch.Tensor, batch: Batch, start: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """K and V [T, Hk, K, D] in fp32 at the K positions from `start`, V zero past the context, and which are in it."""
    block_size = cache.shape[2]
    at_K = torch.arange(start, start + KEY_TILE, device=cache.device)  # never cut, or its width would depend on the batch
    valid_TK = at_K < batch.context_T[:, None]
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


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """See Rope."""
    half = x.shape[-1] // 2
    a, b = x[..., :half].float(), x[..., half:].float()
    cos, sin = cos[:, None], sin[:, None]
    left, right = a * cos - b * sin, b * cos + a * sin
    x[..., :half] = left
    x[..., half:] = right


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    gate, up = gate_up.float().chunk(2, -1)
    return (F.silu(gate) * up).to(gate_up.dtype)


def sample(logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """See Sample."""
    noise_RV = -torch.log(-torch.log(_uniform(keys, logits.shape[1])))
    return (logits + temperature[:, None] * noise_RV).argmax(-1)


def _uniform(keys_R: torch.Tensor, vocab: int) -> torch.Tensor:
    """[R, V] numbers inside (0, 1), on a grid of 2^-24: SplitMix64 of (key, entry). int64 wraps around as uint64 does."""
    x = keys_R[:, None] + torch.arange(1, vocab + 1, device=keys_R.device) * _signed(GOLDEN)
    x = (x ^ _shift(x, 30)) * _signed(MIX_1)
    x = (x ^ _shift(x, 27)) * _signed(MIX_2)
    x = x ^ _shift(x, 31)
    return (_shift(x, 40).float() + 0.5) * 2.0**-24


def _shift(x: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right, which torch does not have for int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    """The 64 bits of x as torch's int64 reads them."""
    return x - (1 << 64) if x >> 63 else x
