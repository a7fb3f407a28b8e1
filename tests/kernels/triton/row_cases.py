"""The ops that work on one token at a time, and the copies of blocks, in the interpreter against float64."""

from __future__ import annotations

import torch
from casebook import DTYPES, assert_close, case, far_apart, randn

from slotlab_kernels.ops import triton_ops

SLOTS = [5, -1, 0, 11, -1, 7, 6, -1]


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turn = torch.polar(torch.ones_like(angles).double(), angles.double())[:, None]
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double()) * turn
    return torch.cat((pairs.real, pairs.imag), -1)


@case(9, 3, 64, 4, "fp32")
@case(28, 4, 128, 16, "fp16")
@case(5, 1, 80, 8, "bf16")
@case(4, 4, 96, 5, "fp32")
@case(40, 40, 128, 4, "fp16")
def rope_store_turns_and_writes_the_slots_and_nothing_else(n: int, kv: int, dim: int, block_size: int, dtype: str) -> None:
    """Padding has slot -1, which is not the last slot (vllm#43810)."""
    qkv, angles = randn(8, n + 2 * kv, dim, dtype=DTYPES[dtype]), randn(8, dim // 2, seed=1)
    cache = torch.full((2, 3, block_size, kv, dim), torch.nan, dtype=DTYPES[dtype])
    q, k, v = qkv.split((n, kv, kv), 1)
    expected_q, expected_k, kept = turned(q, angles), turned(k, angles), qkv[:, n:].clone()
    triton_ops.rope_store(q, k, v, angles.cos(), angles.sin(), cache, torch.tensor(SLOTS))
    assert_close(q, expected_q)
    assert torch.equal(qkv[:, n:], kept), "k and v of the batch are only read"
    flat = cache.flatten(1, 2)
    for token, slot in enumerate(SLOTS):
        if slot >= 0:
            assert_close(flat[0, slot], expected_k[token])
            assert torch.equal(flat[1, slot], v[token])
    assert flat[:, [slot for slot in range(3 * block_size) if slot not in SLOTS]].isnan().all()


@case()
def rope_store_reaches_past_2_to_the_31_elements() -> None:
    q, k, v = (far_apart((3, heads, 16), 2**30 + 2**10) for heads in (2, 1, 1))
    cache = far_apart((3, 2, 4, 1, 16), 2**30 + 2**10).transpose(0, 1)
    for seed, x in enumerate((q, k, v)):
        x.copy_(randn(*x.shape, seed=seed))
    angles = randn(3, 8, seed=7)
    expected_q, expected_k = turned(q, angles), turned(k, angles)
    triton_ops.rope_store(q, k, v, angles.cos(), angles.sin(), cache, torch.tensor([-1, 2, 9]))
    assert_close(q, expected_q)
    assert_close(cache[0, 2, 1], expected_k[2])
    assert torch.equal(cache[1, 2, 1], v[2]) and torch.equal(cache[1, 0, 2], v[1])


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()


@case(1, "fp32")
@case(70, "fp32")
@case(576, "fp16")
@case(2048, "bf16")
def rms_norm(width: int, dtype: str) -> None:
    x, weight = randn(3, width + 5, dtype=DTYPES[dtype])[:, 5:], randn(width, seed=1, dtype=DTYPES[dtype])
    assert_close(triton_ops.rms_norm(x, weight, 1e-5), norm(x, weight))


@case("fp32")
@case("fp16")
def rms_norm_of_each_head_of_a_view(dtype: str) -> None:
    qkv, weight = randn(3, 7, 80, dtype=DTYPES[dtype]), randn(80, seed=1, dtype=DTYPES[dtype])
    assert_close(triton_ops.rms_norm(qkv[:, 2:6], weight, 1e-5), norm(qkv[:, 2:6], weight))


@case(70, "fp32")
@case(576, "fp16")
@case(2048, "bf16")
def add_rms_norm_rounds_the_residual_and_takes_the_norm_of_that(width: int, dtype: str) -> None:
    x, residual = randn(3, width, dtype=DTYPES[dtype]), randn(3, width + 5, seed=2, dtype=DTYPES[dtype])[:, 5:]
    weight, before = randn(width, seed=1, dtype=DTYPES[dtype]), residual.clone()
    out = triton_ops.add_rms_norm(x, residual, weight, 1e-5)
    assert_close(residual, before.double() + x.double())
    assert_close(out, norm(residual, weight))


@case("fp32")
@case("fp16")
@case("bf16")
def silu_mul_also_far_from_zero(dtype: str) -> None:
    gate_up = torch.cat((torch.linspace(-120, 120, 1480), randn(1480))).repeat(2, 1).to(DTYPES[dtype])
    gate, up = gate_up.double().chunk(2, -1)
    assert_close(triton_ops.silu_mul(gate_up), gate / (1 + (-gate).exp()) * up)


@case("fp32", 3, 8)
@case("fp16", 2, 64)
@case("bf16", 5, 1)
def blocks_go_out_and_back_and_touch_no_others(dtype: str, kv_heads: int, block_size: int) -> None:
    cache, blocks = randn(2, 2, 5, block_size, kv_heads, 80, dtype=DTYPES[dtype]), torch.tensor([4, 0, 3])
    before = cache.clone()
    kept = triton_ops.gather_blocks(cache, blocks)
    assert torch.equal(kept, before[:, :, blocks])
    triton_ops.scatter_blocks(-kept, cache, blocks)
    assert torch.equal(cache[:, :, blocks], -kept)
    assert torch.equal(cache[:, :, [1, 2]], before[:, :, [1, 2]])
    assert triton_ops.gather_blocks(cache, blocks[:0]).shape[2] == 0


@case()
def blocks_reach_past_2_to_the_31_elements() -> None:
    cache = far_apart((3, 1, 2, 4, 1, 16), 2**30 + 2**10).permute(1, 2, 0, 3, 4, 5)  # blocks first in memory
    cache[:, :, 2] = randn(1, 2, 4, 1, 16, dtype=torch.float16)
    kept = triton_ops.gather_blocks(cache, torch.tensor([2]))
    assert torch.equal(kept[:, :, 0], cache[:, :, 2])
    triton_ops.scatter_blocks(-kept, cache, torch.tensor([2]))
    assert torch.equal(cache[:, :, 2], -kept[:, :, 0])
