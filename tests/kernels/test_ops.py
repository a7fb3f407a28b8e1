"""Every op of every implementation against a plain float64 computation, with NaN wherever nothing may be read."""

import math

import numpy as np
import pytest
import torch

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.ops import Ops, choose_ops, cpp_paths, prefer_all

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
VOCAB = 64
implementations = pytest.mark.parametrize("implementation", ("torch", "numba", *cpp_paths.here()))
dtypes = pytest.mark.parametrize("dtype", TOLERANCE)


def ops_of(implementation: str) -> Ops:
    return choose_ops(CPU, prefer_all(implementation))


def randn(*size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance)


def paged(lengths: tuple[int, ...], block_size: int, kv_heads: int, dim: int, dtype: torch.dtype) -> tuple[Batch, torch.Tensor]:
    """A decode batch of these context lengths, and a cache that is NaN outside of them. Blocks are shuffled."""
    needed = [-(-length // block_size) for length in lengths]
    blocks = torch.randperm(sum(needed) + 2, generator=torch.Generator().manual_seed(1)).tolist()
    rows, cache = [], torch.full((2, len(blocks), block_size, kv_heads, dim), torch.nan, dtype=dtype)
    for length, need in zip(lengths, needed, strict=True):
        mine = [blocks.pop() for _ in range(need)]
        for at in range(length):
            cache[:, mine[at // block_size], at % block_size] = randn(2, kv_heads, dim, seed=100 * length + at, dtype=dtype)
        rows.append(Row([0], length - 1, mine, None))
    return Batch.pack(rows, Limits(block_size, cache.shape[1], VOCAB, 10_000), CPU, padding=-len(rows) % 8), cache


def dense_attention(q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
    """Softmax attention token by token in float64; zeros for context 0."""
    block_size, group = cache.shape[2], q.shape[1] // cache.shape[3]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for t, context in enumerate(batch.context_T.tolist()):
        slots = [(int(batch.tables_SB[batch.row_T[t], at // block_size]), at % block_size) for at in range(context)]
        slots = slots[-window:]
        if slots:
            k, v = (torch.stack([half[slot] for slot in slots]).double().repeat_interleave(group, 1) for half in cache)
            weights = (torch.einsum("nd,knd->nk", q[t].double(), k) / math.sqrt(q.shape[2])).softmax(-1)
            out[t] = torch.einsum("nk,knd->nd", weights, v)
    return out


@implementations
@dtypes
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), ((9, 3, 64), (4, 4, 16), (7, 1, 80)))
@pytest.mark.parametrize("block_size", (8, 16))
def test_paged_attention(implementation: str, dtype: torch.dtype, heads: int, kv_heads: int, dim: int, block_size: int) -> None:
    lengths = (1, block_size - 1, block_size, block_size + 1, 63, 64, 65, 3 * block_size, 130)
    batch, cache = paged(lengths, block_size, kv_heads, dim, dtype)
    assert batch.context_T[-1] == 0, "the batch ends with padding, of context 0"
    qkv = randn(len(batch.ids_T), heads + 2 * kv_heads, dim, dtype=dtype)
    out = ops_of(implementation).paged_attention(qkv[:, :heads], cache, batch)
    assert out.dtype == dtype
    assert_close(out, dense_attention(qkv[:, :heads], cache, batch))


@implementations
@dtypes
@pytest.mark.parametrize("window", (1, 5, 16, 40, 1000))
def test_a_window_hides_what_is_older(implementation: str, dtype: torch.dtype, window: int) -> None:
    """Also where the cache is NaN there (vllm#30887)."""
    batch, cache = paged((1, 4, 5, 6, 16, 17, 39, 90), 16, 2, 32, dtype)
    q = randn(8, 4, 32, dtype=dtype)
    expected = dense_attention(q, cache, batch, window)
    if window <= 16:
        cache[:, batch.tables_SB[7, : (90 - window) // 16]] = torch.nan
    assert_close(ops_of(implementation).paged_attention(q, cache, batch, window), expected)


@implementations
@dtypes
def test_rope_store_turns_q_and_writes_the_slots_and_nothing_else(implementation: str, dtype: torch.dtype) -> None:
    cache = torch.full((2, 3, 4, 2, 16), torch.nan, dtype=dtype)
    qkv, slots = randn(8, 7, 16, dtype=dtype), torch.tensor([5, -1, 0, 11, -1, -1, 7, -1])
    angles = randn(8, 8, seed=1)
    turn = torch.polar(torch.ones(8, 8).double(), angles.double())[:, None]
    pairs = torch.complex(qkv[:, :5, :8].double(), qkv[:, :5, 8:].double()) * turn
    turned, values = torch.cat((pairs.real, pairs.imag), -1), qkv[:, 5:].clone()
    ops_of(implementation).rope_store(qkv[:, :3], qkv[:, 3:5], qkv[:, 5:], angles.cos(), angles.sin(), cache, slots)
    assert_close(qkv[:, :3], turned[:, :3])
    assert torch.equal(qkv[:, 5:], values)
    flat = cache.flatten(1, 2)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            assert_close(flat[0, slot], turned[token, 3:])
            assert torch.equal(flat[1, slot], values[token])
    untouched = [slot for slot in range(12) if slot not in slots]
    assert flat[:, untouched].isnan().all()


def double_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()


@implementations
@dtypes
def test_rms_norm_of_tokens_and_of_heads(implementation: str, dtype: torch.dtype) -> None:
    x, weight = randn(8, 70, dtype=dtype), randn(70, seed=1, dtype=dtype)
    assert_close(ops_of(implementation).rms_norm(x, weight, 1e-5), double_norm(x, weight))
    heads = randn(8, 5, 70, dtype=dtype)[:, 1:4]
    assert_close(ops_of(implementation).rms_norm(heads, weight, 1e-5), double_norm(heads, weight))


@implementations
@dtypes
def test_add_rms_norm_rounds_the_sum_first(implementation: str, dtype: torch.dtype) -> None:
    x, residual, weight = randn(8, 70, dtype=dtype), randn(8, 70, seed=2, dtype=dtype), randn(70, seed=1, dtype=dtype)
    expected = x + residual
    normed = ops_of(implementation).add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(residual, expected)
    assert_close(normed, double_norm(expected, weight))


def test_blocks_come_back_where_they_are_put() -> None:
    ops, cache = choose_ops(CPU), randn(3, 2, 6, 4, 2, 8)
    before = cache.clone()
    kept = ops.gather_blocks(cache, torch.tensor([4, 1]))
    assert torch.equal(kept, before[:, :, [4, 1]])
    ops.scatter_blocks(kept, cache, torch.tensor([0, 5]))
    assert torch.equal(cache[:, :, [0, 5]], kept) and torch.equal(cache[:, :, 1:5], before[:, :, 1:5])


@implementations
@dtypes
def test_silu_mul_also_far_from_zero(implementation: str, dtype: torch.dtype) -> None:
    gate_up = torch.cat((torch.linspace(-120, 120, 480), randn(480))).repeat(8, 1).to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    assert_close(ops_of(implementation).silu_mul(gate_up), gate / (1 + (-gate).exp()) * up)


@dtypes
def test_numba_equals_torch_within_rounding(dtype: torch.dtype) -> None:
    numba, reference = ops_of("numba"), ops_of("torch")
    batch, cache = paged((1, 15, 16, 17, 100), 16, 3, 64, dtype)
    qkv, gate_up, weight = randn(8, 15, 64, dtype=dtype), randn(8, 3072, dtype=dtype), randn(3072, seed=1, dtype=dtype)
    one, other = (ops.paged_attention(qkv[:, :9], cache, batch) for ops in (numba, reference))
    assert_close(one, other.double())
    assert_close(numba.rms_norm(gate_up, weight, 1e-5), reference.rms_norm(gate_up, weight, 1e-5).double())
    assert_close(numba.silu_mul(gate_up), reference.silu_mul(gate_up).double())


def test_numba_rounds_to_bf16_as_torch_does() -> None:
    """A gate so large that silu leaves it as it is: then only the rounding of gate * up is left."""
    bits = np.random.default_rng(0).integers(0, 2**16, 4096, np.uint16)
    up = torch.cat((torch.from_numpy(bits).view(torch.bfloat16), torch.tensor([torch.nan, torch.inf, -0.0]).bfloat16()))
    gate = torch.full_like(up, 100.5)
    got, expected = ops_of("numba").silu_mul(torch.cat((gate, up))[None])[0], (gate.float() * up.float()).bfloat16()
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got[~got.isnan()], expected[~got.isnan()])


@implementations
def test_attention_does_not_hide_a_nan_of_its_own_context(implementation: str) -> None:
    batch, cache = paged((5, 40), 16, 1, 16, torch.float32)
    out = ops_of(implementation).paged_attention(torch.full((8, 2, 16), torch.nan), cache, batch)
    assert out[:2].isnan().all() and (out[2:] == 0).all()
