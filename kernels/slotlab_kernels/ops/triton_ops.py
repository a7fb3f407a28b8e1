"""Every op but the multiplication in Triton, for CUDA and ROCm.

Tested without a GPU: in Triton's interpreter, and compiled ahead of time (`slotlab_kernels.aot`). Every sum is over one token
or row, in an order that its own length decides. (cuBLAS, between these ops, chooses its kernels by the size of the batch.)
"""

import math
import os
from dataclasses import dataclass

import torch

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops import triton_attention, triton_blocks, triton_rows, triton_sampling

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LANES = {"cuda": 32, "hip": 64}
BACKEND = "hip" if torch.version.hip else "cuda"
SPLIT = 256
"""Keys of a split of the attention, aligned to position 0: a part of the arithmetic, so no tile may change it."""
NO_WINDOW = 2**31 - 1
FEW = 8
"""Tokens beyond two per row that still make a step one of decodes: the padding of a small one."""
ELEMENTS = 1024
"""Elements of a tile of the kernels that only stream."""


@dataclass(frozen=True)
class Tile:
    """How an attention kernel is cut: rows (tokens by heads) of a program, keys of a step; warps, stages of the pipeline."""

    rows: int
    keys: int
    warps: int
    stages: int


# By padded head dim: what `slotlab_kernels.aot` finds to fit the registers of all its targets. Rows: 64, the least of sm_90's
# matrix instructions, and for decodes 16, the least of all, which leaves room for more programs at once.
PREFILL_TILES = {64: Tile(64, 64, 4, 2), 128: Tile(64, 64, 8, 2)}
DECODE_TILES = {64: Tile(16, 64, 4, 3), 128: Tile(16, 64, 4, 3)}
DETERMINISTIC_TILES = {64: Tile(64, 64, 4, 2), 128: Tile(64, 32, 8, 2)}
"""For prefills and decodes alike, so that a token's numbers do not depend on which of the two kernels computed it."""
FP32_TILE = Tile(16, 16, 4, 2)
"""For fp32 in every case. CUDA has no matrix instructions for it, so it is slow, and larger tiles spill."""


def rope_store(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor,
    slots: torch.Tensor,
) -> None:  # fmt: skip
    """See RopeStore."""
    _dense(q, k, v, cos, sin, cache, slots)
    tokens, heads, dim = q.shape
    half = dim // 2
    tile = min(_power(heads), max(1, ELEMENTS // _power(half)))
    triton_rows.rope_store[(tokens, _ceil(heads, tile))](
        q, k, v, cos, sin, cache, slots,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], cos.stride(0), sin.stride(0), *cache.stride()[:4],
        HEADS=heads, KV_HEADS=k.shape[1], HALF=half, HALF_PAD=_power(half), BLOCK_SIZE=cache.shape[2], TILE=tile,
        num_warps=_warps(tile * _power(half), q),
    )  # fmt: skip


def paged_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
    """See PagedAttention.

    With few tokens a row (decodes, and the padding of a CUDA graph) the keys are split among programs; with more, one program
    walks over all keys of its tokens. The two sum in the same order, but in tiles of their own, which may round otherwise: a
    token's numbers depend on its batch through this choice only. After `torch.use_deterministic_algorithms(True)` both have
    the same tile, and the numbers do not depend on the batch at all.
    """
    _dense(q, cache)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if len(batch.row_T) <= 2 * len(batch.tables_SB) + FEW:
        _attend_split(q, cache, out, batch, window or NO_WINDOW)
    else:
        _attend(q, cache, out, batch, window or NO_WINDOW)
    return out


def _attend(q: torch.Tensor, cache: torch.Tensor, out: torch.Tensor, batch: Batch, window: int) -> None:
    tile, constants = _tile(PREFILL_TILES, q, cache)
    triton_attention.attend[(_pieces(batch, constants), cache.shape[3])](
        q, cache, out, batch.tables_SB, batch.row_T, batch.context_T, len(q), window, _scale(q),
        *q.stride()[:2], *out.stride()[:2], *cache.stride()[:4], batch.tables_SB.stride(0),
        **constants, BLOCK_SIZE=cache.shape[2], KEYS=tile.keys, SPLIT=SPLIT, UPCAST=_upcast(q),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip


def _attend_split(q: torch.Tensor, cache: torch.Tensor, out: torch.Tensor, batch: Batch, window: int) -> None:
    tile, constants = _tile(DECODE_TILES, q, cache)
    tokens, heads, kv_heads = len(q), q.shape[1], cache.shape[3]
    splits = _ceil(batch.max_context, SPLIT)
    sums = torch.empty((tokens, heads, splits, constants["DIM_PAD"]), dtype=torch.float32, device=q.device)
    stats = torch.empty((tokens, heads, splits, 2), dtype=torch.float32, device=q.device)
    triton_attention.attend_split[(_pieces(batch, constants), kv_heads, splits)](
        q, cache, sums, stats, batch.tables_SB, batch.row_T, batch.context_T, tokens, window, splits, _scale(q),
        *q.stride()[:2], *cache.stride()[:4], batch.tables_SB.stride(0),
        **constants, HEADS=heads, BLOCK_SIZE=cache.shape[2], KEYS=tile.keys, SPLIT=SPLIT, UPCAST=_upcast(q),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    del constants["ROWS"]
    triton_attention.reduce_splits[(tokens, kv_heads)](
        sums, stats, out, batch.context_T, window, splits, *out.stride()[:2],
        **constants, HEADS=heads, SPLIT=SPLIT, num_warps=_warps(constants["GROUP_PAD"] * constants["DIM_PAD"], sums),
    )  # fmt: skip


def _tile(tiles: dict[int, Tile], q: torch.Tensor, cache: torch.Tensor) -> tuple[Tile, dict[str, int]]:
    """How to cut, and the sizes that the attention kernels are compiled for."""
    _, heads, dim = q.shape
    group = heads // cache.shape[3]
    dim_pad = max(16, _power(dim))  # the least that a matrix instruction takes
    assert dim_pad <= max(tiles), f"the attention kernels know head dims up to {max(tiles)}, not {dim}"
    if torch.are_deterministic_algorithms_enabled():
        tiles = DETERMINISTIC_TILES
    tile = FP32_TILE if q.dtype is torch.float32 else next(tile for limit, tile in tiles.items() if dim_pad <= limit)
    rows = max(tile.rows, _power(group))
    return tile, {"GROUP": group, "GROUP_PAD": _power(group), "DIM": dim, "DIM_PAD": dim_pad, "ROWS": rows}


def _pieces(batch: Batch, constants: dict[str, int]) -> int:
    """See `triton_attention._piece`."""
    return _ceil(len(batch.row_T), constants["ROWS"] // constants["GROUP_PAD"]) + len(batch.tables_SB) + 1


def _scale(q: torch.Tensor) -> float:
    """1 / sqrt(D), and log2(e) because the softmax is in base 2."""
    return math.log2(math.e) / math.sqrt(q.shape[2])


def _upcast(q: torch.Tensor) -> bool:
    return INTERPRETED and q.dtype is torch.bfloat16


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See RMSNorm."""
    _dense(x, weight)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x_THC, out_THC = (y if y.ndim == 3 else y[:, None] for y in (x, out))
    tokens, heads, channels = x_THC.shape
    triton_rows.rms_norm[(tokens, heads)](
        x_THC, weight, out_THC, eps, *x_THC.stride()[:2], *out_THC.stride()[:2],
        C=channels, C_PAD=_power(channels), num_warps=_warps(channels, x),
    )  # fmt: skip
    return out


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See AddRMSNorm."""
    _dense(x, residual, weight)
    tokens, channels = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    triton_rows.add_rms_norm[(tokens,)](
        x, residual, weight, out, eps, x.stride(0), residual.stride(0), out.stride(0),
        C=channels, C_PAD=_power(channels), num_warps=_warps(channels, x),
    )  # fmt: skip
    return out


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """See SiluMul."""
    _dense(gate_up)
    tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((tokens, width), dtype=gate_up.dtype, device=gate_up.device)
    triton_rows.silu_mul[(tokens, _ceil(width, ELEMENTS))](
        gate_up, out, gate_up.stride(0), out.stride(0), F=width, TILE=ELEMENTS, num_warps=_warps(ELEMENTS, gate_up)
    )  # fmt: skip
    return out


def sample(
    logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """See Sample."""
    _dense(logits, keys, top_k)
    rows, vocab = logits.shape
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    triton_sampling.sample[(rows,)](
        logits, temperature, keys, top_k, top_p, out, vocab, logits.stride(0), temperature.stride(0), top_p.stride(0),
        INDEX_BITS=vocab.bit_length(), TILE=ELEMENTS, num_warps=_warps(ELEMENTS, logits),
    )  # fmt: skip
    return out


def gather_blocks(all: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """See GatherBlocks."""
    kept = torch.empty((*all.shape[:2], len(blocks), *all.shape[3:]), dtype=all.dtype, device=all.device)
    _copy_blocks(all, kept, blocks, out=True)
    return kept


def scatter_blocks(kept: torch.Tensor, all: torch.Tensor, blocks: torch.Tensor) -> None:
    """See ScatterBlocks."""
    _copy_blocks(all, kept, blocks, out=False)


def _copy_blocks(all: torch.Tensor, kept: torch.Tensor, blocks: torch.Tensor, out: bool) -> None:
    _dense(blocks)
    assert all[0, 0, 0].is_contiguous() and kept[0, 0, :1].is_contiguous(), "a block of a layer must be dense"
    size = all[0, 0, 0].numel()
    triton_blocks.copy_blocks[(len(blocks), 2 * len(all), _ceil(size, ELEMENTS))](
        all, kept, blocks, *all.stride()[:3], *kept.stride()[:3],
        SIZE=size, TILE=ELEMENTS, OUT=out, num_warps=_warps(ELEMENTS, all),
    )  # fmt: skip


def _warps(elements: int, like: torch.Tensor) -> int:
    """So many that each thread loads 16 bytes, the widest load, of a tile; from 1 to 16."""
    return min(16, max(1, _power(elements) * like.element_size() // (16 * LANES[BACKEND])))


def _dense(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        assert tensor.stride(-1) == 1, f"the last dim must be dense, its stride is {tensor.stride(-1)}"


def _power(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def _ceil(n: int, size: int) -> int:
    return -(-n // size)
