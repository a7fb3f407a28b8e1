"""The kernels of the ops that work on one row at a time: norms, RoPE, SwiGLU, the cache's writes, sampling."""

import math

import numba
import numpy as np

from slotlab_kernels.ops.numba_math import Array, compiled, exp, narrow, widen
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)


@compiled()
def store(new_THD: Array, cache_LHD: Array, slots_T: Array) -> None:
    """Copies token t to place `slots_T[t]` of the cache, unless that is negative."""
    tokens, heads, dim = new_THD.shape
    for t in range(tokens):
        if slots_T[t] >= 0:
            for h in range(heads):
                for d in range(dim):
                    cache_LHD[slots_T[t], h, d] = new_THD[t, h, d]


@compiled(reorder_sums=True)
def rms_norm(x_TC: Array, weight_C: Array, eps: float, out_TC: Array) -> None:
    """The sum of squares in fp32, in one order for every row."""
    tokens, hidden = x_TC.shape
    for t in range(tokens):
        total = np.float32(0.0)
        for c in range(hidden):
            x = widen(x_TC[t, c])
            total += x * x
        scale = np.float32(1.0) / np.sqrt(total / np.float32(hidden) + np.float32(eps))
        for c in range(hidden):
            out_TC[t, c] = narrow(widen(x_TC[t, c]) * scale * widen(weight_C[c]), x_TC[t, c])


@compiled()
def rope(x_THD: Array, cos_TF: Array, sin_TF: Array) -> None:
    """Turns pairs (d, d + D/2) in place."""
    tokens, heads, dim = x_THD.shape
    half = dim // 2
    for t in range(tokens):
        for h in range(heads):
            for d in range(half):
                a, b = widen(x_THD[t, h, d]), widen(x_THD[t, h, d + half])
                like = x_THD[t, h, d]
                x_THD[t, h, d] = narrow(a * cos_TF[t, d] - b * sin_TF[t, d], like)
                x_THD[t, h, d + half] = narrow(b * cos_TF[t, d] + a * sin_TF[t, d], like)


@compiled()
def silu_mul(gate_up_TF: Array, out_TF: Array) -> None:
    """gate / (1 + e^-gate) * up."""
    tokens, width = out_TF.shape
    for t in range(tokens):
        for f in range(width):
            gate, up = widen(gate_up_TF[t, f]), widen(gate_up_TF[t, f + width])
            out_TF[t, f] = narrow(gate / (np.float32(1.0) + exp(-gate)) * up, gate_up_TF[t, f])


@compiled(parallel=True)
def sample(logits_RV: Array, temperature_R: Array, keys_R: Array, out_R: Array) -> None:
    """argmax of logits + temperature * Gumbel noise; the first of equals."""
    rows, vocab = logits_RV.shape
    for r in numba.prange(rows):
        best, token = -np.inf, 0
        for v in range(vocab):
            score = logits_RV[r, v]
            if temperature_R[r] > 0.0:
                score += temperature_R[r] * _gumbel(keys_R[r], v)
            if score > best:
                best, token = score, v
        out_R[r] = token


@compiled()
def _gumbel(key: np.uint64, entry: int) -> np.float32:
    """-ln(-ln u) for u in (0, 1) on a grid of 2^-24 from SplitMix64 of (key, entry)."""
    x = key + np.uint64(entry + 1) * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    x = x ^ (x >> np.uint64(31))
    u = (np.float32(x >> np.uint64(40)) + np.float32(0.5)) * np.float32(2.0**-24)
    return np.float32(-math.log(-math.log(u)))
