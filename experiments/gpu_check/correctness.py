"""Part 7: the kernels against float64, and what must be the same bytes or tokens in whatever way it is computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from engine import make_runner, run
from measure import Bench, Finding, checked
from sizes import workload

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.graphs import Capture, Graphs
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import Ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama

BLOCK_SIZE = 16
ROWS = ((0, 1), (4, 1), (15, 1), (16, 1), (299, 1), (0, 17), (30, 40), (250, 20))  # (tokens before, tokens computed)
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def check_all(bench: Bench, model: Llama, ops: Ops, backend: Graphs | None) -> Iterator[Finding]:
    """All of part 7. The last one switches torch's deterministic algorithms on, for the rest of the process."""
    for heads in bench.sizes.heads:
        yield checked(
            f"attention, {'/'.join(map(str, heads))}, against float64", _attention_error(bench, ops, heads), ALLOWED[bench.dtype]
        )
    yield from _row_errors(bench, ops)
    yield checked(f"the last blocks of {bench.sizes.giant:,} elements: different elements", _giant(bench, ops), 0)
    yield from _tokens(bench, ops, backend)
    yield from _variants(bench, model, ops, backend)


def _worst(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest error, relative to the largest value that is right; NaN if anything is."""
    return float((found.double() - right).abs().max() / right.abs().max().clamp(min=1e-9))


def _filled(bench: Bench, heads: tuple[int, int, int], blocks: int) -> tuple[torch.Tensor, torch.Tensor, Batch]:
    """Queries, a cache of NaN in which the contexts of ROWS alone are numbers, and their batch."""
    queries, keys, dim = heads
    per_row = -(-max(start + n for start, n in ROWS) // BLOCK_SIZE)
    order = (blocks - 1 - torch.randperm(len(ROWS) * per_row)).view(len(ROWS), per_row)
    rows = [Row([1] * n, start, own, None) for (start, n), own in zip(ROWS, order.tolist(), strict=True)]
    batch = Batch.pack(rows, Limits(BLOCK_SIZE, blocks, 2, 1 << 30), bench.device, padding=3)
    cache = torch.full((2, blocks, BLOCK_SIZE, keys, dim), torch.nan, device=bench.device, dtype=bench.dtype)
    for (start, n), own in zip(ROWS, order.tolist(), strict=True):
        for at in range(start + n):
            cache[:, own[at // BLOCK_SIZE], at % BLOCK_SIZE] = torch.randn(2, keys, dim).to(cache)
    q = torch.randn(len(batch.row_T), queries, dim).to(cache)
    return q, cache, batch


def _attention_error(bench: Bench, ops: Ops, heads: tuple[int, int, int]) -> float:
    q, cache, batch = _filled(bench, heads, 256)
    found = ops.paged_attention(q, cache, batch).cpu()
    right = torch.zeros(found.shape, dtype=torch.float64)
    group, flat = heads[0] // heads[1], cache.flatten(1, 2).cpu().double()
    for token, (row, context) in enumerate(zip(batch.row_T.tolist(), batch.context_T.tolist(), strict=True)):
        places = torch.arange(context)
        k, v = flat[:, batch.tables_SB[row].cpu()[places // BLOCK_SIZE] * BLOCK_SIZE + places % BLOCK_SIZE].repeat_interleave(
            group, 2
        )
        if context:
            weights = torch.softmax(torch.einsum("nd,knd->nk", q[token].cpu().double(), k) * heads[2] ** -0.5, 1)
            right[token] = torch.einsum("nk,knd->nd", weights, v)
    return _worst(found, right)


def _row_errors(bench: Bench, ops: Ops) -> Iterator[Finding]:
    queries, _, dim = bench.sizes.heads[-1]
    x, residual = (torch.randn(40, queries * dim).to(bench.device, bench.dtype) for _ in range(2))
    weight, gate_up = torch.randn(x.shape[1]).to(x), torch.randn(40, 2 * x.shape[1]).to(x)

    def norm(y: torch.Tensor) -> torch.Tensor:
        return y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.cpu().double()

    gate, up = gate_up.cpu().double().chunk(2, -1)
    right = {"rms_norm": norm(x.cpu().double()), "silu_mul": gate * gate.sigmoid() * up}
    right["add_rms_norm"] = norm((x.cpu() + residual.cpu()).double())
    found = {"rms_norm": ops.rms_norm(x, weight, 1e-5), "silu_mul": ops.silu_mul(gate_up)}
    found["add_rms_norm"] = ops.add_rms_norm(x, residual, weight, 1e-5)
    for name, values in found.items():
        yield checked(f"{name} against float64", _worst(values.cpu(), right[name]), ALLOWED[bench.dtype])
    yield checked("rope_store against float64", _rope_error(bench, ops), ALLOWED[bench.dtype])


def _rope_error(bench: Bench, ops: Ops) -> float:
    """With a padding token, whose slot is -1: the last cell of the cache stays as it was (vllm#43810)."""
    queries, keys, dim = bench.sizes.heads[-1]
    q, k, v = (torch.randn(9, heads, dim).to(bench.device, bench.dtype) for heads in (queries, keys, keys))
    angle = torch.rand(9, dim // 2, dtype=torch.float64) * 6
    cache = torch.zeros(2, 2, BLOCK_SIZE, keys, dim, device=bench.device, dtype=bench.dtype)
    slots = torch.tensor([4, 3, 9, 20, 0, 17, 30, 2, -1])

    def turn(x: torch.Tensor) -> torch.Tensor:
        a, b = x.cpu().double().chunk(2, -1)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    right_q, right = turn(q), torch.zeros(2, 2 * BLOCK_SIZE, keys, dim, dtype=torch.float64)
    right[0][slots[:8]], right[1][slots[:8]] = turn(k)[:8], v[:8].cpu().double()
    ops.rope_store(q, k, v, *(t.float().to(bench.device) for t in (angle.cos(), angle.sin())), cache, slots.to(bench.device))
    return max(_worst(q[:8].cpu(), right_q[:8]), _worst(cache.flatten(1, 2).cpu(), right))


def _giant(bench: Bench, ops: Ops) -> float:
    """Attention over the last blocks of a cache that 32 bits cannot address, beside the same blocks in a small cache."""
    heads = bench.sizes.heads[-1]
    blocks = max(256, bench.sizes.giant // (BLOCK_SIZE * heads[1] * heads[2]))
    q, small, batch = _filled(bench, heads, 256)
    large = torch.full((2, blocks, *small.shape[2:]), torch.nan, device=bench.device, dtype=bench.dtype)
    large[:, -256:] = small
    far = replace(batch, tables_SB=batch.tables_SB + blocks - 256)
    return float((ops.paged_attention(q, small, batch) != ops.paged_attention(q, large, far)).sum())


def _tokens(bench: Bench, ops: Ops, backend: Graphs | None) -> Iterator[Finding]:
    """A tiny model: the same tokens with a step in flight, and in graphs, as without."""
    model = random_llama(TINY, bench.device, torch.float32, seed=0)
    small = replace(bench, sizes=replace(bench.sizes, requests=24, shortest=1, longest=60))
    lengths = workload(small.sizes)
    plain = run(make_runner(small, model, ops, None, BLOCK_SIZE, False), lengths, False, 64).outputs
    for name, overlap, graphs in (("a step in flight", True, False), ("graphs", False, True), ("both", True, True)):
        found = run(make_runner(small, model, ops, backend, BLOCK_SIZE, graphs), lengths, overlap, 64).outputs
        yield checked(f"{name}: requests with other tokens", sum(found[i] != tokens for i, tokens in plain.items()), 0)


def _variants(bench: Bench, model: Llama, ops: Ops, backend: Graphs | None) -> Iterator[Finding]:
    """Seven prompts, alone, together, in two chunks and with a last token that is decoded; then those decodes in a graph."""
    lengths = [n for n in (1, 5, 16, 17, 100, 257, 300) if n < model.shape.max_context]
    runner = ModelRunner(model, 32 * len(lengths), BLOCK_SIZE, ops, Capture(len(lengths), 512), backend, deterministic=True)
    whole = [Row([3 + i] * n, 0, list(range(32 * i, 32 * i + 32)), GREEDY) for i, n in enumerate(lengths)]
    seen: list[set[bytes]] = [set() for _ in whole]

    def step(rows: list[tuple[int, Row]]) -> None:
        runner.probe = lambda index, logits: seen[rows[index][0]].add(logits.cpu().numpy().tobytes())
        runner.step([row for _, row in rows])

    step(list(enumerate(whole)))
    for i, row in enumerate(whole):
        step([(i, row)])
        cut = len(row.ids) * 2 // 3
        if cut:
            step([(i, Row(row.ids[:cut], 0, row.blocks, None))])
        step([(i, Row(row.ids[cut:], cut, row.blocks, GREEDY))])
    last = [Row(row.ids[-1:], len(row.ids) - 1, row.blocks, GREEDY) for row in whole]
    step(list(enumerate(last)))
    yield checked("deterministic: rows whose logits depend on batch or chunks", sum(len(logits) != 1 for logits in seen), 0)
    before, runner.probe = runner.cache.all.clone(), None
    runner.step(last)
    assert runner.graphs is not None and runner.graphs.counts["graph"] == 1, "the decodes ran without a graph"
    yield checked("deterministic: elements of K and V that a graph changes", int((before != runner.cache.all).sum()), 0)
