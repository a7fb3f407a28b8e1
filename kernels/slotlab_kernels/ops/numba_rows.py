"""The kernels of the ops that work on one row at a time: norms, RoPE, SwiGLU, the cache's writes, sampling."""

import math

import numba
import numpy as np

from slotlab_kernels.ops.numba_math import Array, compiled, exp, narrow, widen
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

_GOLDEN, _MIX_1, _MIX_2 = np.uint64(GOLDEN), np.uint64(MIX_1), np.uint64(MIX_2)


@compiled()
def rope_store(
    q_TND: Array, k_THD: Array, v_THD: Array, cos_TF: Array, sin_TF: Array, keys_LHD: Array, values_LHD: Array, slots_T: Array
) -> None:
    """Turns q in place; k, turned, and v go to place `slots_T[t]` of the cache, unless that is negative."""
    for t in range(len(slots_T)):
        for n in range(q_TND.shape[1]):
            _turn(q_TND[t, n], cos_TF[t], sin_TF[t], q_TND[t, n])
        if slots_T[t] >= 0:
            for h in range(k_THD.shape[1]):
                _turn(k_THD[t, h], cos_TF[t], sin_TF[t], keys_LHD[slots_T[t], h])
                for d in range(v_THD.shape[2]):
                    values_LHD[slots_T[t], h, d] = v_THD[t, h, d]


@compiled()
def _turn(x_D: Array, cos_F: Array, sin_F: Array, out_D: Array) -> None:
    """Turns the pairs (d, d + D/2); `out_D` may be `x_D`."""
    half = len(cos_F)
    for d in range(half):
        a, b = widen(x_D[d]), widen(x_D[d + half])
        out_D[d] = narrow(a * cos_F[d] - b * sin_F[d], x_D[0])
        out_D[d + half] = narrow(b * cos_F[d] + a * sin_F[d], x_D[0])


@compiled(reorder_sums=True)
def rms_norm(x_THC: Array, weight_C: Array, eps: float, out_THC: Array) -> None:
    """One norm per token and head."""
    for t in range(x_THC.shape[0]):
        for h in range(x_THC.shape[1]):
            _norm(x_THC[t, h], weight_C, eps, out_THC[t, h])


@compiled(reorder_sums=True)
def add_rms_norm(x_TC: Array, residual_TC: Array, weight_C: Array, eps: float, out_TC: Array) -> None:
    """The norm is that of the rounded sum."""
    for t in range(x_TC.shape[0]):
        for c in range(x_TC.shape[1]):
            residual_TC[t, c] = narrow(widen(residual_TC[t, c]) + widen(x_TC[t, c]), residual_TC[0, 0])
        _norm(residual_TC[t], weight_C, eps, out_TC[t])


@compiled(reorder_sums=True)
def _norm(x_C: Array, weight_C: Array, eps: float, out_C: Array) -> None:
    """The sum of squares in fp32, in one order for every row."""
    total = np.float32(0.0)
    for c in range(len(x_C)):
        x = widen(x_C[c])
        total += x * x
    scale = np.float32(1.0) / np.sqrt(total / np.float32(len(x_C)) + np.float32(eps))
    for c in range(len(x_C)):
        out_C[c] = narrow(widen(x_C[c]) * scale * widen(weight_C[c]), x_C[0])


@compiled()
def silu_mul(gate_up_TF: Array, out_TF: Array) -> None:
    """gate / (1 + e^-gate) * up."""
    tokens, width = out_TF.shape
    for t in range(tokens):
        for f in range(width):
            gate, up = widen(gate_up_TF[t, f]), widen(gate_up_TF[t, f + width])
            out_TF[t, f] = narrow(gate / (np.float32(1.0) + exp(-gate)) * up, gate_up_TF[t, f])


@compiled(parallel=True)
def sample(logits_RV: Array, temperature_R: Array, keys_R: Array, top_k_R: Array, top_p_R: Array, out_R: Array) -> None:
    """argmax of logits + temperature * Gumbel noise over what may be drawn."""
    for r in numba.prange(len(logits_RV)):
        temperature = temperature_R[r]
        if temperature > 0.0 and (top_k_R[r] > 0 or top_p_R[r] < 1.0):
            order_V = np.argsort(-_without_nan(logits_RV[r]), kind="mergesort")
            count = _head(logits_RV[r], order_V, temperature, top_k_R[r], top_p_R[r])
            out_R[r] = _draw(logits_RV[r], np.sort(order_V[:count]), temperature, keys_R[r])
        else:
            out_R[r] = _draw(logits_RV[r], np.arange(logits_RV.shape[1]), temperature, keys_R[r])


@compiled()
def _draw(logits_V: Array, entries: Array, temperature: np.float32, key: np.uint64) -> int:
    """The best of these entries, the first of equals; NaN never wins."""
    best, token = -np.inf, 0
    for v in entries:
        score = logits_V[v]
        if temperature > 0.0:
            score += temperature * _gumbel(key, v)
        if score > best:
            best, token = score, v
    return token


@compiled()
def _without_nan(logits_V: Array) -> Array:
    return np.where(np.isnan(logits_V), np.float32(-np.inf), logits_V)


@compiled()
def _head(logits_V: Array, order_V: Array, temperature: np.float32, top_k: int, top_p: np.float32) -> int:
    """How many entries, in falling order, may be drawn; at least one."""
    count = len(order_V) if top_k <= 0 else min(top_k, len(order_V))
    if top_p >= 1.0 or np.isnan(logits_V[order_V[0]]):
        return count
    weights = np.exp((logits_V[order_V[:count]] - logits_V[order_V[0]]).astype(np.float64) / temperature)
    limit, before = np.float64(top_p) * weights.sum(), 0.0
    for rank in range(count):
        if before >= limit and rank > 0:
            return rank
        before += weights[rank]
    return count


@compiled()
def _gumbel(key: np.uint64, entry: int) -> np.float32:
    """-ln(-ln u) for u in (0, 1) on a grid of 2^-24 from SplitMix64 of (key, entry)."""
    x = key + np.uint64(entry + 1) * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    x = x ^ (x >> np.uint64(31))
    u = (np.float32(x >> np.uint64(40)) + np.float32(0.5)) * np.float32(2.0**-24)
    u = min(u, np.float32(1.0 - 2.0**-24))  # the last one is rounded to 1, where the noise is infinite
    return np.float32(-math.log(-math.log(u)))
