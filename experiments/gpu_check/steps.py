"""Parts 3 and 4: whole steps of a model with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from measure import Bench, Finding, rated, timed
from torch.profiler import ProfilerActivity, profile

from slotlab_kernels.batch import Batch, Row, pack_rows, split
from slotlab_kernels.graphs import Capture, Graphs
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import Ops
from slotlab_kernels.roofline import Work, costs
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY

BLOCK_SIZE = 16
DECODE, PREFILL = "3 decode step", "4 prefill"


def least_seconds(bench: Bench, runner: ModelRunner, rows: list[Row]) -> float:
    """What a step of these rows takes if it is bound by memory alone or by arithmetic alone, whichever is more."""
    work, cost = Work(), costs(runner.model.shape, bench.dtype)
    work.add(rows, 0.0)
    return max(work.bytes(cost) / bench.ceilings.bandwidth, work.flops(cost) / bench.ceilings.flops)


def decode_rows(runner: ModelRunner, count: int, context: int) -> list[Row]:
    """One token each, in contexts of their own."""
    per_row = -(-context // BLOCK_SIZE)
    order = torch.randperm(runner.limits.num_blocks)[: count * per_row].view(count, per_row).tolist()
    return [Row([1], context - 1, blocks, GREEDY) for blocks in order]


def measure_decodes(bench: Bench, model: Llama, ops: Ops, backend: Graphs | None) -> Iterator[Finding]:
    """Part 3: the graph of each size, without the host's work; and at the smallest its kernels and the time of each."""
    sizes, context = bench.sizes, bench.sizes.decode_context
    blocks = sizes.decode_rows[-1] * -(-context // BLOCK_SIZE)
    runner = ModelRunner(model, blocks, BLOCK_SIZE, ops, Capture(sizes.decode_rows[-1], model.shape.max_context), backend)
    for count in sizes.decode_rows:
        rows = decode_rows(runner, count, context)
        seconds = bench.timer.seconds(replay(runner, rows))
        yield timed(DECODE, f"{count} rows, context {context}, in a graph", seconds, least_seconds(bench, runner, rows))
        if count == sizes.decode_rows[0] and bench.device.type == "cuda":
            nodes = count_kernels(runner, rows)
            yield Finding(DECODE, f"kernels of a step of {count} rows", nodes, "kernels")
            yield Finding(DECODE, "time per kernel of it", seconds / nodes * 1e6, "us")


def replay(runner: ModelRunner, rows: list[Row]) -> Callable[[], torch.Tensor]:
    """The graph of these rows, with what it reads on the device already."""
    graphs = runner.graphs
    assert graphs is not None, "the runner has no graphs"
    key = graphs.choose(rows, 0, False)
    assert key is not None, f"there is no graph for {len(rows)} rows: {graphs.counts}"
    parts = pack_rows(rows, runner.limits, square=key[0]).parts
    sent = torch.from_numpy(np.concatenate([part.ravel() for part in parts.values()])).to(runner.model.device)
    tables_SB = split(sent, parts)["tables_SB"]
    return torch.inference_mode()(lambda: graphs.replay(key, sent, tables_SB))


def count_kernels(runner: ModelRunner, rows: list[Row]) -> int:
    """The kernels that one step runs, in its graph and beside it."""
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        runner.step(rows)
    return sum(event.count for event in trace.key_averages() if "Memcpy" not in event.key)


def measure_prefills(bench: Bench, models: dict[str, Llama], ops: Ops) -> Iterator[Finding]:
    """Part 4: the share of the matrix product's rate that prompts reach; the target is for models of a billion weights."""
    for name, model in models.items():
        per_token = costs(model.shape, bench.dtype).flops_per_token
        target = 0.5 if per_token >= 1.5e9 else None  # two operations per weight, without the head
        for tokens in bench.sizes.prefills:
            seconds = bench.timer.seconds(prefill(model, ops, tokens, bench.sizes.piece))
            rate, most = per_token * tokens / seconds / 1e12, bench.ceilings.flops / 1e12
            yield rated(PREFILL, f"{name}, {tokens} tokens", rate, most, "TFLOP/s", target)


def prefill(model: Llama, ops: Ops, tokens: int, piece: int) -> Callable[[], torch.Tensor]:
    """The forward pass of so many tokens in rows of `piece`, packed already."""
    pieces = [min(piece, tokens - at) for at in range(0, tokens, piece)]
    per_row = -(-piece // BLOCK_SIZE)
    runner = ModelRunner(model, len(pieces) * per_row, BLOCK_SIZE, ops)
    rows = [Row([1] * n, 0, list(range(i * per_row, (i + 1) * per_row)), GREEDY) for i, n in enumerate(pieces)]
    batch = Batch.pack(rows, runner.limits, model.device)
    return torch.inference_mode()(lambda: runner.model.forward(batch, runner.cache, ops))
