"""Parts 5 and 6: a whole workload through slotlab's scheduler and loop, and where its time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import torch
from measure import Bench, Finding, rated
from sizes import workload
from torch.profiler import ProfilerActivity, profile

from slotlab import Arrival, Engine, Plan, Point, RequestState, Result
from slotlab.clock import WallClock
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_kernels.batch import LATEST, Row
from slotlab_kernels.graphs import REASONS, Capture, Graphs
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import Ops
from slotlab_kernels.roofline import Work, costs
from slotlab_kernels.runner import Launched, ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.fcfs import FCFS

SPEED, SHARES = "5 engine", "6 host"


@dataclass
class Step:
    """A step under way: its tokens are read when it is waited for."""

    engine: Bare
    launched: Launched
    plan: list[RequestState]
    outcome: Result
    forecast: Result | None

    def result(self) -> Result:
        start = perf_counter()
        tokens = self.launched.tokens()
        end = perf_counter()
        for req, token in zip(self.plan, tokens, strict=True):
            if token is not None:
                self.engine.ids[req.id].append(token)
        self.engine.waits.append(end - start)
        self.engine.reads.append(perf_counter() - end)
        return replace(self.outcome, durations=[end - self.engine.last])


class Bare(Engine):
    """A runner behind the scheduler, for requests whose lengths are known; `overlap`: one step in flight."""

    def __init__(self, runner: ModelRunner, overlap: bool, lengths: Sequence[tuple[int, int]]) -> None:
        super().__init__("cpu", runner.limits.block_size, runner.limits.num_blocks)
        self.runner, self.overlap, self.lengths = runner, overlap, lengths
        self.ids = {i: [1 + i % 100] * prompt for i, (prompt, _) in enumerate(lengths)}
        self.launches, self.waits, self.reads = list[float](), list[float](), list[float]()
        self.last = perf_counter()

    def submit(self, plan: Plan) -> Step:
        self.last = start = perf_counter()
        rows, emitted = [], []
        for req, n in plan.tokens.items():
            ids, end = self.ids[req.id][req.computed : req.computed + n], req.computed + n
            emits = req.remaining == n
            rows.append(Row(ids + [LATEST] * (n - len(ids)), req.computed, req.blocks, GREEDY if emits else None, req.id))
            emitted.append(int(emits))
            assert end <= self.lengths[req.id][0] + self.lengths[req.id][1], f"request {req.id} computes more than it has"
        launched = self.runner.launch(rows)
        self.launches.append(perf_counter() - start)
        stopped = [req for req, e in zip(plan.tokens, emitted, strict=True) if req.emitted + e >= self.lengths[req.id][1]]
        outcome = Result([0.0], emitted, stopped)
        return Step(self, launched, list(plan.tokens), outcome, outcome if self.overlap else None)

    def left(self, req: RequestState) -> None:
        self.runner.forget(req.id)


@dataclass
class Served:
    """A workload that was served: how long it took, and how long each step took the host."""

    seconds: float
    tokens: int
    outputs: dict[int, list[int]]
    plan: float
    launch: float
    wait: float
    read: float
    commit: float


def run(runner: ModelRunner, lengths: Sequence[tuple[int, int]], overlap: bool, max_tokens: int) -> Served:
    """Serves them all, come at once, in steps of at most `max_tokens`."""
    runner.reset()
    arrivals = [Arrival(0.0, prompt, output, output) for prompt, output in lengths]
    engine, recorder = Bare(runner, overlap, lengths), Recorder()
    scheduler = Scheduler(BlockPool(engine.num_blocks, engine.block_size), FCFS(), Continuous(len(lengths), max_tokens))
    start = perf_counter()
    serve(source(arrivals, Point()), scheduler, engine, WallClock(), recorder)
    seconds = perf_counter() - start
    outputs = {i: engine.ids[i][prompt:] for i, (prompt, _) in enumerate(lengths)}
    assert [len(tokens) for tokens in outputs.values()] == [output for _, output in lengths], "an output has another length"
    plan, commit = (median(host[f"{name}_ms"] for host in recorder.hosts) / 1e3 for name in ("plan", "commit"))
    parts = (median(part) for part in (engine.launches, engine.waits, engine.reads))
    return Served(seconds, sum(output for _, output in lengths), outputs, plan, *parts, commit)


def floor_seconds(bench: Bench, model: Llama, lengths: Sequence[tuple[int, int]]) -> float:
    """All requests resident: the weights once per step, the K and V of every decode, and the arithmetic of the prompts."""
    cost, work = costs(model.shape, bench.dtype), Work(steps=max(output for _, output in lengths))
    for prompt, output in lengths:
        work.kv += sum(range(prompt, prompt + output))
        work.tokens += prompt
        work.pairs += prompt * (prompt + 1) // 2
    return work.bytes(cost) / bench.ceilings.bandwidth + work.flops(cost) / bench.ceilings.flops


def make_runner(bench: Bench, model: Llama, ops: Ops, backend: Graphs | None, block_size: int, graphs: bool) -> ModelRunner:
    """With blocks for all requests at once."""
    blocks = sum(-(-(prompt + output) // block_size) for prompt, output in workload(bench.sizes))
    capture = Capture(bench.sizes.requests, 2 * bench.sizes.longest) if graphs else None
    return ModelRunner(model, blocks, block_size, ops, capture, backend)


def measure_engine(bench: Bench, model: Llama, ops: Ops, backend: Graphs | None) -> Iterator[Finding]:
    """Part 5: tokens per second, with everything on, then with one thing changed at a time; part 6: shares of the first two."""
    lengths, sizes = workload(bench.sizes), bench.sizes
    most = sum(output for _, output in lengths) / floor_seconds(bench, model, lengths)
    cases = [(True, True, sizes.block_sizes[0]), (False, True, sizes.block_sizes[0]), (True, False, sizes.block_sizes[0])]
    outputs = None
    for overlap, graphs, block_size in [*cases, *((True, True, size) for size in sizes.block_sizes[1:])]:
        runner = make_runner(bench, model, ops, backend, block_size, graphs)
        short = [(prompt, min(output, 4)) for prompt, output in lengths]
        run(runner, short, overlap, sizes.max_tokens)  # compiles what is compiled at first use
        served = run(runner, lengths, overlap, sizes.max_tokens)
        name = f"overlap {_on(overlap)}, graphs {_on(graphs)}, blocks of {block_size}"
        target = 0.6 if (overlap, graphs, block_size) == cases[0] else None
        yield rated(SPEED, name, served.tokens / served.seconds, most, "tokens/s", target)
        if outputs is None:
            outputs = served.outputs
        same = sum(served.outputs[i] == tokens for i, tokens in outputs.items())
        yield Finding(SPEED, f"{name}: same tokens as the first", same, "requests", len(outputs))
        if graphs and block_size == sizes.block_sizes[0]:
            yield from _shares(bench, runner, served, overlap)
        if runner.graphs:
            for why, steps in runner.graphs.counts.items():
                yield Finding(
                    SPEED, f"{name}: steps {'in graphs' if why == 'graph' else f'without: {REASONS[why]}'}", steps, "steps"
                )
        del runner  # its cache, before the next one has its own


def _on(value: bool) -> str:
    return "on" if value else "off"


def _shares(bench: Bench, runner: ModelRunner, served: Served, overlap: bool) -> Iterator[Finding]:
    """Part 6: medians per step; and how long the device had nothing to do, in a run that is traced."""
    for name in ("plan", "launch", "wait", "read", "commit"):
        yield Finding(SHARES, f"{name}, overlap {_on(overlap)}", getattr(served, name) * 1e6, "us per step")
    if bench.device.type == "cuda":
        lengths = [(prompt, 48) for prompt, _ in workload(bench.sizes)]
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            wall = run(runner, lengths, overlap, bench.sizes.max_tokens).seconds
            torch.cuda.synchronize(bench.device)
        idle = 1 - sum(event.self_device_time_total for event in trace.key_averages()) / 1e6 / wall
        target = 0.03 if overlap else None
        yield Finding(
            SHARES,
            f"device idle, overlap {_on(overlap)}",
            idle,
            "share",
            0.0,
            target=target,
            ok=None if target is None else idle < target,
        )
