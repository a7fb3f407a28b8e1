# mypy: ignore-errors
"""The kernels of the ops that work on one token at a time: RoPE with the cache's writes, norms, SwiGLU.

A program sums over its own token only, so the batch cannot change a result. Dims: H heads, D half of a
head's dim, C channels, F elements of the intermediate; PAD is the next power of two.
"""

import triton
import triton.language as tl


@triton.jit
def rope_store(
    q_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, cache_ptr, slots_ptr,
    stride_qt, stride_qh, stride_kt, stride_kh, stride_vt, stride_vh, stride_cos, stride_sin,
    stride_half: tl.int64, stride_block: tl.int64, stride_slot: tl.int64, stride_head: tl.int64,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Grid (tokens, tiles of TILE query heads); the key heads of the same numbers go with them."""
    token = tl.program_id(0).to(tl.int64)
    head_H = tl.program_id(1) * TILE + tl.arange(0, TILE)
    d_D = tl.arange(0, HALF_PAD)
    cos_D = tl.load(cos_ptr + token * stride_cos + d_D, mask=d_D < HALF, other=0.0)
    sin_D = tl.load(sin_ptr + token * stride_sin + d_D, mask=d_D < HALF, other=0.0)

    there_HD = (head_H < HEADS)[:, None] & (d_D < HALF)[None, :]
    q_HD = q_ptr + token * stride_qt + head_H[:, None] * stride_qh + d_D[None, :]
    left_HD, right_HD = _turned(q_HD, HALF, there_HD, cos_D, sin_D)
    tl.store(q_HD, left_HD, mask=there_HD)
    tl.store(q_HD + HALF, right_HD, mask=there_HD)

    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        there_HD = (head_H < KV_HEADS)[:, None] & (d_D < HALF)[None, :]
        cache_ptr += slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * stride_slot
        cache_HD = cache_ptr + head_H[:, None] * stride_head + d_D[None, :]
        k_HD = k_ptr + token * stride_kt + head_H[:, None] * stride_kh + d_D[None, :]
        left_HD, right_HD = _turned(k_HD, HALF, there_HD, cos_D, sin_D)
        tl.store(cache_HD, left_HD, mask=there_HD)
        tl.store(cache_HD + HALF, right_HD, mask=there_HD)
        v_HD = v_ptr + token * stride_vt + head_H[:, None] * stride_vh + d_D[None, :]
        cache_HD += stride_half
        tl.store(cache_HD, tl.load(v_HD, mask=there_HD, other=0.0), mask=there_HD)
        tl.store(cache_HD + HALF, tl.load(v_HD + HALF, mask=there_HD, other=0.0), mask=there_HD)


@triton.jit
def _turned(x_HD, HALF: tl.constexpr, there_HD, cos_D, sin_D):
    """The pairs (i, i + HALF) turned, in the dtype that they came in."""
    left_HD = tl.load(x_HD, mask=there_HD, other=0.0).to(tl.float32)
    right_HD = tl.load(x_HD + HALF, mask=there_HD, other=0.0).to(tl.float32)
    cos_HD, sin_HD = cos_D[None, :], sin_D[None, :]
    dtype = x_HD.dtype.element_ty
    return (left_HD * cos_HD - right_HD * sin_HD).to(dtype), (right_HD * cos_HD + left_HD * sin_HD).to(dtype)


@triton.jit
def rms_norm(
    x_ptr, weight_ptr, out_ptr, eps, stride_xt, stride_xh, stride_ot, stride_oh, C: tl.constexpr, C_PAD: tl.constexpr
):  # fmt: skip
    """Grid (tokens, heads or 1)."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c_C = tl.arange(0, C_PAD)
    x_C = tl.load(x_ptr + token * stride_xt + head * stride_xh + c_C, mask=c_C < C, other=0.0).to(tl.float32)
    _store_norm(x_C, weight_ptr, out_ptr + token * stride_ot + head * stride_oh, eps, C, C_PAD)


@triton.jit
def add_rms_norm(
    x_ptr, residual_ptr, weight_ptr, out_ptr, eps, stride_x, stride_residual, stride_o, C: tl.constexpr, C_PAD: tl.constexpr
):  # fmt: skip
    """Grid (tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    c_C = tl.arange(0, C_PAD)
    residual_ptr += token * stride_residual
    x_C = tl.load(x_ptr + token * stride_x + c_C, mask=c_C < C, other=0.0).to(tl.float32)
    residual_C = tl.load(residual_ptr + c_C, mask=c_C < C, other=0.0).to(tl.float32)
    sum_C = (x_C + residual_C).to(residual_ptr.dtype.element_ty)
    tl.store(residual_ptr + c_C, sum_C, mask=c_C < C)
    _store_norm(sum_C.to(tl.float32), weight_ptr, out_ptr + token * stride_o, eps, C, C_PAD)


@triton.jit
def _store_norm(x_C, weight_ptr, out_ptr, eps, C: tl.constexpr, C_PAD: tl.constexpr):
    c_C = tl.arange(0, C_PAD)
    weight_C = tl.load(weight_ptr + c_C, mask=c_C < C, other=0.0).to(tl.float32)
    y_C = x_C * tl.rsqrt(tl.sum(x_C * x_C, 0) / C + eps) * weight_C
    tl.store(out_ptr + c_C, y_C.to(out_ptr.dtype.element_ty), mask=c_C < C)


@triton.jit
def silu_mul(gate_up_ptr, out_ptr, stride_gate_up, stride_o, F: tl.constexpr, TILE: tl.constexpr):
    """Grid (tokens, tiles of F)."""
    token = tl.program_id(0).to(tl.int64)
    f_F = tl.program_id(1) * TILE + tl.arange(0, TILE)
    gate_up_ptr += token * stride_gate_up
    gate_F = tl.load(gate_up_ptr + f_F, mask=f_F < F, other=0.0).to(tl.float32)
    up_F = tl.load(gate_up_ptr + F + f_F, mask=f_F < F, other=0.0).to(tl.float32)
    y_F = gate_F / (1.0 + tl.exp(-gate_F)) * up_F
    tl.store(out_ptr + token * stride_o + f_F, y_F.to(out_ptr.dtype.element_ty), mask=f_F < F)
