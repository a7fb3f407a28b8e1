"""Paged attention in the interpreter, against a dense computation in float64, with NaN wherever nothing may be read."""

from __future__ import annotations

import math
from unittest import mock

import torch
from casebook import CPU, DTYPES, assert_close, case, far_apart, randn

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.ops import triton_ops

Piece = tuple[int, int]  # of one row: the tokens computed before, the tokens of this call


def paged(pieces: list[Piece], block_size: int, kv_heads: int, dim: int, dtype: torch.dtype) -> tuple[Batch, torch.Tensor]:
    """A batch of these rows, and a cache that is NaN outside of them; blocks are shuffled, block 0 has nothing."""
    needed = [-(-(start + count) // block_size) for start, count in pieces]
    blocks = (1 + torch.randperm(sum(needed), generator=torch.Generator().manual_seed(1))).tolist()
    rows, cache = [], torch.full((2, 1 + len(blocks), block_size, kv_heads, dim), torch.nan, dtype=dtype)
    for index, ((start, count), need) in enumerate(zip(pieces, needed, strict=True)):
        mine = [blocks.pop() for _ in range(need)]
        held = randn(2, start + count, kv_heads, dim, seed=index, dtype=dtype)
        for at in range(start + count):
            cache[:, mine[at // block_size], at % block_size] = held[:, at]
        rows.append(Row([0] * count, start, mine, None))
    return Batch.pack(rows, Limits(block_size, cache.shape[1], 1, 10_000), CPU, padding=3), cache


def dense(q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int) -> torch.Tensor:
    """Softmax attention token by token in float64; zeros for context 0."""
    block_size, group = cache.shape[2], q.shape[1] // cache.shape[3]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for t, context in enumerate(batch.context_T.tolist()):
        seen = torch.arange(max(0, context - window) if window else 0, context)
        if len(seen):
            blocks = batch.tables_SB[batch.row_T[t], seen // block_size]
            k, v = cache[:, blocks, seen % block_size].double().repeat_interleave(group, 2)
            weights = (torch.einsum("nd,knd->nk", q[t].double(), k) / math.sqrt(q.shape[2])).softmax(-1)
            out[t] = torch.einsum("nk,knd->nd", weights, v)
    return out


def decodes(block_size: int) -> list[Piece]:
    return [(length - 1, 1) for length in (1, block_size - 1, block_size, block_size + 1, 64, 65, 270)]


def mixed(block_size: int) -> list[Piece]:
    return [(0, 1), (block_size - 1, 1), (0, block_size + 1), (5, 19), (269, 1), (250, 18)]


HEADS = {"9/3x64": (9, 3, 64), "28/4x128": (28, 4, 128), "5/1x80": (5, 1, 80), "2/2x96": (2, 2, 96)}


@case("decodes", "9/3x64", 16, "fp32", 0)
@case("decodes", "9/3x64", 16, "bf16", 0)
@case("decodes", "28/4x128", 16, "fp16", 0)
@case("decodes", "5/1x80", 8, "fp32", 0)
@case("decodes", "5/1x80", 32, "fp16", 7)
@case("decodes", "2/2x96", 64, "bf16", 0)
@case("decodes", "2/2x96", 16, "fp32", 1)
@case("mixed", "9/3x64", 16, "fp32", 0)
@case("mixed", "9/3x64", 8, "bf16", 100)
@case("mixed", "28/4x128", 64, "fp16", 0)
@case("mixed", "5/1x80", 16, "fp32", 7)
@case("mixed", "5/1x80", 32, "bf16", 0)
@case("mixed", "2/2x96", 16, "fp32", 0)
def attention(kind: str, heads: str, block_size: int, dtype: str, window: int) -> None:
    n, kv_heads, dim = HEADS[heads]
    batch, cache = paged({"decodes": decodes, "mixed": mixed}[kind](block_size), block_size, kv_heads, dim, DTYPES[dtype])
    assert batch.context_T[-1] == 0, "the batch ends with padding, of context 0"
    qkv = randn(len(batch.ids_T), n + 2 * kv_heads, dim, dtype=DTYPES[dtype])
    path = "_attend_split" if kind == "decodes" else "_attend"
    with mock.patch.object(triton_ops, path, wraps=getattr(triton_ops, path)) as taken:
        out = triton_ops.paged_attention(qkv[:, :n], cache, batch, window)
    assert taken.called, f"{kind} went another way than {path}"
    assert out.dtype == DTYPES[dtype]
    assert_close(out, dense(qkv[:, :n], cache, batch, window))


@case("bf16", 0)
@case("fp16", 40)
def attention_does_not_depend_on_the_cut_when_deterministic(dtype: str, window: int) -> None:
    """One prompt of 300 tokens whole, in chunks, and its last tokens as decodes beside others: the same bits (vllm#5543)."""
    q, end = randn(300, 3, 16, seed=9, dtype=DTYPES[dtype]), 300
    torch.use_deterministic_algorithms(True)

    def run(*pieces: Piece) -> torch.Tensor:
        batch, cache = paged(list(pieces), 16, 1, 16, DTYPES[dtype])
        (start, count), ids = pieces[0], len(batch.ids_T)
        # the row's K and V come from its seed and its length: cut from those of the whole prompt
        held = randn(2, end, 1, 16, seed=0, dtype=DTYPES[dtype])
        for at in range(start + count):
            cache[:, batch.tables_SB[0, at // 16], at % 16] = held[:, at]
        queries = torch.cat((q[start : start + count], randn(ids - count, 3, 16, dtype=DTYPES[dtype])))
        return triton_ops.paged_attention(queries, cache, batch, window)[:count]

    whole = run((0, 300))
    assert torch.equal(torch.cat((run((0, 256)), run((256, 44)))), whole)
    assert torch.equal(run((0, 37), (3, 1)), whole[:37])
    for at in (0, 63, 255, 256, 299):
        assert torch.equal(run((at, 1), (9, 1)), whole[at : at + 1]), f"the decode at {at} differs"
        assert torch.equal(run((at, 1), (0, 20)), whole[at : at + 1]), f"the decode at {at} beside a prefill differs"
    torch.use_deterministic_algorithms(False)


@case()
def splits_without_keys_are_not_read() -> None:
    """16 splits, contexts of 3 and 0 tokens, scratch full of NaN (vllm#47188)."""
    batch, cache = paged([(2, 1), (16 * 256 - 1, 1)], 256, 1, 16, torch.float32)
    batch.context_T[1:] = 0
    q = randn(len(batch.ids_T), 3, 16)
    poisoned = mock.patch.object(torch, "empty", lambda size, **how: torch.full(size, torch.nan, **how))
    with poisoned:
        out = triton_ops.paged_attention(q, cache, batch)
    assert_close(out, dense(q, cache, batch, 0))


@case("decodes")
@case("mixed")
def attention_does_not_hide_a_nan(kind: str) -> None:
    batch, cache = paged({"decodes": decodes, "mixed": mixed}[kind](16), 16, 1, 16, torch.float32)
    real = int((batch.context_T > 0).sum())
    out = triton_ops.paged_attention(torch.full((len(batch.ids_T), 2, 16), torch.nan), cache, batch)
    assert out[:real].isnan().all() and (out[real:] == 0).all()


@case(1)
@case(20)
def attention_reaches_past_2_to_the_31_elements(count: int) -> None:
    """int32 offsets wrap around: vllm#1486, #47671, #50427, sglang#20389."""
    far = far_apart((3, 2, 16, 1, 16), 2**30 + 2**10)  # blocks first
    cache = far.transpose(0, 1)
    cache[:, 2] = randn(2, 16, 1, 16, dtype=torch.float16)
    cache[:, 1] = randn(2, 16, 1, 16, seed=1, dtype=torch.float16)
    batch = Batch.pack([Row([0] * count, 20 - count, [2, 1], None)], Limits(16, 3, 1, 100), CPU, padding=3)
    near = randn(len(batch.ids_T), 2, 16, dtype=torch.float16)
    q = far_apart((len(near), 2, 16), 2**31 // 7 + 2**10)
    q.copy_(near)
    assert_close(triton_ops.paged_attention(q, cache, batch), dense(near, cache, batch, 0))
