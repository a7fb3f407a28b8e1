# mypy: ignore-errors
"""The kernel that copies blocks out of a whole KV cache and back, all layers at once: for swapping."""

import triton
import triton.language as tl


@triton.jit
def copy_blocks(
    cache_ptr, kept_ptr, blocks_ptr,
    stride_layer: tl.int64, stride_half: tl.int64, stride_block: tl.int64,
    kept_layer: tl.int64, kept_half: tl.int64, kept_block: tl.int64,
    SIZE: tl.constexpr, TILE: tl.constexpr, OUT: tl.constexpr,
):  # fmt: skip
    """Grid (blocks, 2 * layers, tiles of the SIZE elements of a block). OUT: from the cache to `kept`; else back."""
    index, layer, half = tl.program_id(0), tl.program_id(1) // 2, tl.program_id(1) % 2
    block = tl.load(blocks_ptr + index).to(tl.int64)
    cache_ptr += layer * stride_layer + half * stride_half + block * stride_block
    kept_ptr += layer * kept_layer + half * kept_half + index * kept_block
    i = tl.program_id(2) * TILE + tl.arange(0, TILE)
    if OUT:
        tl.store(kept_ptr + i, tl.load(cache_ptr + i, mask=i < SIZE, other=0), mask=i < SIZE)
    else:
        tl.store(cache_ptr + i, tl.load(kept_ptr + i, mask=i < SIZE, other=0), mask=i < SIZE)
