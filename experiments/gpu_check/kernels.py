"""Part 2: every kernel alone, beside the bytes or operations that it cannot do without."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from measure import Bench, Finding, timed

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.ops import Ops

PART = "2 kernels"
BLOCK_SIZE = 16
GIGABYTE = 1 << 30


def measure_kernels(bench: Bench, ops: Ops) -> Iterator[Finding]:
    """Attention of decodes and of prompts, then what only streams."""
    for heads in bench.sizes.heads:
        for rows in bench.sizes.rows:
            for context in bench.sizes.contexts:
                yield _decode(bench, ops, heads, rows, context)
        for tokens in bench.sizes.prompts:
            yield _prefill(bench, ops, heads, tokens)
    yield from _streaming(bench, ops)


def _attention(
    bench: Bench, heads: tuple[int, int, int], rows: list[Row], blocks: int
) -> tuple[torch.Tensor, torch.Tensor, Batch]:
    """Queries, one layer's cache, and the batch of these rows."""
    queries, keys, dim = heads
    batch = Batch.pack(rows, Limits(BLOCK_SIZE, blocks, 2, 1 << 30), bench.device)
    q = torch.randn(len(batch.row_T), queries, dim, device=bench.device, dtype=bench.dtype)
    cache = torch.randn(2, blocks, BLOCK_SIZE, keys, dim, device=bench.device, dtype=bench.dtype)
    return q, cache, batch


def _decode(bench: Bench, ops: Ops, heads: tuple[int, int, int], rows: int, context: int) -> Finding:
    per_row = -(-context // BLOCK_SIZE)
    order = torch.randperm(rows * per_row).view(rows, per_row).tolist()
    q, cache, batch = _attention(bench, heads, [Row([1], context - 1, blocks, None) for blocks in order], rows * per_row)
    size = 2 * rows * context * heads[1] * heads[2] * bench.dtype.itemsize
    seconds = bench.timer.seconds(lambda: ops.paged_attention(q, cache, batch))
    name = f"decode attention, {'/'.join(map(str, heads))}, {rows} x {context}"
    return timed(PART, name, seconds, size / bench.ceilings.bandwidth, 0.75 if size >= GIGABYTE else None)


def _prefill(bench: Bench, ops: Ops, heads: tuple[int, int, int], tokens: int) -> Finding:
    blocks = torch.randperm(-(-tokens // BLOCK_SIZE)).tolist()
    q, cache, batch = _attention(bench, heads, [Row([1] * tokens, 0, blocks, None)], len(blocks))
    flops = 4 * heads[0] * heads[2] * tokens * (tokens + 1) // 2
    seconds = bench.timer.seconds(lambda: ops.paged_attention(q, cache, batch))
    return timed(PART, f"prefill attention, {'/'.join(map(str, heads))}, {tokens}", seconds, flops / bench.ceilings.flops, 0.4)


def _streaming(bench: Bench, ops: Ops) -> Iterator[Finding]:
    """What reads and writes once: `moved` counts elements."""
    tokens, like = bench.sizes.tokens, {"device": bench.device, "dtype": bench.dtype}
    queries, keys, dim = bench.sizes.heads[-1]
    width = queries * dim
    qkv = torch.randn(tokens, queries + 2 * keys, dim, **like)
    q, k, v = qkv.split((queries, keys, keys), 1)
    cos, sin = (torch.rand(tokens, dim // 2, device=bench.device) for _ in range(2))
    cache = torch.zeros(2, -(-tokens // BLOCK_SIZE), BLOCK_SIZE, keys, dim, **like)
    slots = torch.randperm(tokens, device=bench.device)
    x, residual, weight, gate_up = (
        torch.randn(*size, **like) for size in ((tokens, width), (tokens, width), (width,), (tokens, 2 * width))
    )
    moved = {
        "rope_store": (lambda: ops.rope_store(q, k, v, cos, sin, cache, slots), 2 * (q.numel() + k.numel() + v.numel())),
        "rms_norm": (lambda: ops.rms_norm(x, weight, 1e-5), 2 * x.numel()),
        "add_rms_norm": (lambda: ops.add_rms_norm(x, residual, weight, 1e-5), 4 * x.numel()),
        "silu_mul": (lambda: ops.silu_mul(gate_up), 3 * x.numel()),
    }
    for name, (work, elements) in moved.items():
        least = elements * bench.dtype.itemsize / bench.ceilings.bandwidth
        yield timed(PART, f"{name}, {tokens} tokens of {width}", bench.timer.seconds(work), least, 0.7)
    logits = torch.randn(bench.sizes.decode_rows[-1], bench.sizes.model.vocab, device=bench.device)
    one = torch.ones(len(logits), device=bench.device)
    draw = (one, torch.arange(len(one), device=bench.device), torch.zeros_like(one, dtype=torch.int64), one)
    seconds = bench.timer.seconds(lambda: ops.sample(logits, *draw))
    yield timed(PART, f"sample, {len(logits)} rows of {logits.shape[1]}", seconds, logits.nbytes / bench.ceilings.bandwidth)
