"""Paged attention on the CPU: one item of work per query token and key head, by the same arithmetic in any batch.

Shape suffixes: S rows, B blocks per row, K keys of one block, G query heads that share a key head.
"""

import numba
import numpy as np

from slotlab_kernels.ops.numba_math import Array, compiled, exp, narrow, widen

_LOWEST = np.float32(-1e30)


@compiled(reorder_sums=True, parallel=True)
def attend(
    q_TND: Array, k_NBSHD: Array, v_NBSHD: Array, tables_SB: Array, row_T: Array, context_T: Array, window: int,
    out_TND: Array, workers: int,
) -> None:  # fmt: skip
    """Online softmax over the blocks of a row (Milakov & Gimelshein, 2018; Kwon et al., 2023); context 0 gives zeros."""
    tokens, heads, dim = q_TND.shape
    block_size, kv_heads = k_NBSHD.shape[1], k_NBSHD.shape[2]
    group = heads // kv_heads
    for worker in numba.prange(workers):
        q_GD, out_GD = np.empty((group, dim), np.float32), np.empty((group, dim), np.float32)
        weight_GK, wide_D = np.empty((group, block_size), np.float32), np.empty(dim, np.float32)
        best_G, sum_G = np.empty(group, np.float32), np.empty(group, np.float32)
        # interleaved, because the later tokens of a prefill have the longer contexts
        for item in range(worker, tokens * kv_heads, workers):
            t, h = item // kv_heads, item % kv_heads
            _load(q_TND, t, h, q_GD)
            out_GD[:] = np.float32(0.0)
            sum_G[:] = np.float32(0.0)
            best_G[:] = _LOWEST
            oldest = max(0, context_T[t] - window) if window > 0 else 0
            for start in range(oldest - oldest % block_size, context_T[t], block_size):
                block = tables_SB[row_T[t], start // block_size]
                first, end = max(0, oldest - start), min(block_size, context_T[t] - start)
                _score(q_GD, k_NBSHD, block, h, first, end, wide_D, weight_GK)
                _softmax(weight_GK, first, end, best_G, sum_G, out_GD)
                _accumulate(weight_GK, v_NBSHD, block, h, first, end, wide_D, out_GD)
            _store(out_GD, sum_G, out_TND, t, h)


@compiled()
def _load(q_TND: Array, t: int, h: int, q_GD: Array) -> None:
    """The queries of a token that share key head `h`, in fp32, scaled by 1 / sqrt(D)."""
    group, dim = q_GD.shape
    scale = np.float32(1.0 / np.sqrt(dim))
    for g in range(group):
        for d in range(dim):
            q_GD[g, d] = widen(q_TND[t, h * group + g, d]) * scale


@compiled(reorder_sums=True)
def _score(
    q_GD: Array, k_NBSHD: Array, block: int, h: int, first: int, end: int, wide_D: Array, score_GK: Array
) -> None:  # fmt: skip
    """The products of the queries with the keys `first` to `end` of a block; the others are never read."""
    group, dim = q_GD.shape
    for j in range(first, end):
        for d in range(dim):
            wide_D[d] = widen(k_NBSHD[block, j, h, d])
        for g in range(group):
            dot = np.float32(0.0)
            for d in range(dim):
                dot += q_GD[g, d] * wide_D[d]
            score_GK[g, j] = dot


@compiled(reorder_sums=True)
def _softmax(score_GK: Array, first: int, end: int, best_G: Array, sum_G: Array, out_GD: Array) -> None:
    """Turns scores into weights relative to the largest so far, and rescales what was summed under a smaller one."""
    group, dim = out_GD.shape
    for g in range(group):
        best = best_G[g]
        for j in range(first, end):
            best = max(best, score_GK[g, j])
        decay = exp(best_G[g] - best)
        best_G[g] = best
        total = np.float32(0.0)
        for j in range(first, end):
            score_GK[g, j] = exp(score_GK[g, j] - best)
            total += score_GK[g, j]
        sum_G[g] = sum_G[g] * decay + total
        for d in range(dim):
            out_GD[g, d] *= decay


@compiled(reorder_sums=True)
def _accumulate(
    weight_GK: Array, v_NBSHD: Array, block: int, h: int, first: int, end: int, wide_D: Array, out_GD: Array
) -> None:  # fmt: skip
    """Adds the weighted values of a block."""
    group, dim = out_GD.shape
    for j in range(first, end):
        for d in range(dim):
            wide_D[d] = widen(v_NBSHD[block, j, h, d])
        for g in range(group):
            for d in range(dim):
                out_GD[g, d] += weight_GK[g, j] * wide_D[d]


@compiled()
def _store(out_GD: Array, sum_G: Array, out_TND: Array, t: int, h: int) -> None:
    """Divides by the sum of the weights and stores; without any key the result is zero."""
    group, dim = out_GD.shape
    for g in range(group):
        inverse = np.float32(1.0) / sum_G[g] if sum_G[g] != 0.0 else np.float32(0.0)
        for d in range(dim):
            out_TND[t, h * group + g, d] = narrow(out_GD[g, d] * inverse, out_TND[0, 0, 0])
