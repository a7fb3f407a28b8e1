"""The engine's master test: the tokens of a request, and the logits behind each, never depend on anything else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from slotlab import Admission, Arrival, Batching, Mode, Model, Plan, Policy, Preemption, Result, Streams
from slotlab.clock import VirtualClock
from slotlab.core.blocks import BlockPool
from slotlab.core.prefix import PrefixPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.workload import Point
from slotlab_kernels import runner
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.shape import SMOLLM2_135M, TINY, LlamaShape
from slotlab_kernels.weights import random_llama
from slotlab_plugins import opening
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.static import Static
from slotlab_plugins.engines.paged import Paged, Step
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.preemption.victims import LowestRank, Newest

delayed = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "kernels" / "delayed.py")))
SHAPES = {"tiny": TINY, "smollm2": replace(SMOLLM2_135M, layers=2, vocab=4096)}  # its widths; two of its layers tell as much
PROMPTS = (1, 5, 16, 17, 30, 47, 3, 64, 21, 9, 48, 75)
OUTPUTS = (6, 12, 3, 9, 1, 14, 20, 5, 8, 2, 4, 3)
PREFIXES = {2: 15, 3: 16, 4: 20, 5: 40, 7: 40, 8: 17}  # tokens that are those of everybody else in the group
FOLLOWS = {10: 3, 11: 5}
ARRIVALS = tuple(
    Arrival(
        0.5 * i,
        prompt,
        32,
        output,
        tenant="ab"[i % 2],
        priority=i % 3,
        prefix_group=0 if i in PREFIXES else None,
        prefix_tokens=PREFIXES.get(i, 0),
        follows=FOLLOWS.get(i),
    )
    for i, (prompt, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True))
)

Logits = dict[int, list[bytes]]  # of each request, one entry per emitted token


class Random(Model):
    """Random weights of a shape."""

    def __init__(self, shape: LlamaShape) -> None:
        self.llama_shape = shape

    def load(self, device: torch.device, dtype: torch.dtype) -> Any:
        return random_llama(self.llama_shape, device, dtype, seed=0)

    def origin(self) -> str:
        return "random"


class Watched(Paged):
    """A paged engine on a virtual clock (so that runs repeat) that keeps the logits row behind every emitted token."""

    def clock(self) -> VirtualClock:  # type: ignore[override]
        return VirtualClock()

    def submit(self, plan: Plan) -> Step:
        requests = list(plan.tokens)
        self.runner.probe = lambda row, logits: self.logits.setdefault(requests[row].id, []).append(logits.numpy().tobytes())
        return super().submit(plan)

    def read(self, step: Step) -> Result:
        return replace(super().read(step), durations=[1.0])


@cache
def engine(shape: str, dtype: str, num_blocks: int) -> Watched:
    opened = Watched("cpu", 16, num_blocks, dtype=dtype)
    opened.open(Random(SHAPES[shape]))
    return opened


class Seen(NamedTuple):
    """What a run did beside computing."""

    logits: Logits
    preemptions: int
    recomputed: int
    swapped: int
    cached: int
    padding: int


def run(
    shape: str,
    dtype: str,
    batching: Batching,
    policy: Policy,
    preemption: Preemption,
    num_blocks: int = 64,
    prefix_cache: bool = False,
) -> Seen:
    """Serve all requests."""
    paged = engine(shape, dtype, num_blocks)
    paged.logits = {}
    paged.begin(ARRIVALS, Streams(0))
    pool = PrefixPool(num_blocks, 16, paged.content) if prefix_cache else BlockPool(num_blocks, 16)
    scheduler = Scheduler(pool, policy, batching, Admission(), preemption)
    recorder = Recorder()
    serve(source(ARRIVALS, Point()), scheduler, paged, paged.clock(), recorder)
    pool.check([])
    assert not paged._host, "a copy was left in host memory"
    states, steps = recorder.states, recorder.steps
    assert {id: len(rows) for id, rows in paged.logits.items()} == dict(enumerate(OUTPUTS))
    return Seen(
        paged.logits,
        sum(req.preemptions for req in states),
        sum(req.recomputed for req in states),
        sum(step["swapped_blocks"] for step in steps),
        sum(req.cached for req in states),
        sum(step["padding_tokens"] for step in steps),
    )


@cache
def alone(shape: str, dtype: str) -> Logits:
    """One request at a time, each prompt in one piece: the serial run that all others must equal."""
    return run(shape, dtype, Static(1, 512), Policy(), Newest()).logits


CASES: dict[str, tuple[Any, ...]] = {
    "a large batch": (Continuous(10, 512), Policy, Newest),
    "chunks of seven tokens": (Continuous(6, 7), Policy, Newest),
    "static batches": (Static(4, 512), Policy, Newest),
    "static batches with padding": (Static(4, 512, pad=True), Policy, Newest),
    "shortest first": (Continuous(3, 40), SJF, LowestRank),
    "urgent requests displace": (Continuous(3, 40), lambda: Priority(displace=True), LowestRank),
    "fair shares": (Continuous(4, 33), VTC, LowestRank),
    "a cache too small: preemption and recomputation": (Continuous(6, 24), Policy, LowestRank, 7),
    "a cache too small: preemption and swap": (Continuous(6, 24), Policy, lambda: LowestRank(mode=Mode.SWAP), 7),
    "prefix hits": (Continuous(4, 64), Policy, Newest, 64, True),
    "prefix hits and chunks": (Continuous(6, 7), SJF, Newest, 64, True),
    "prefix hits in a small cache": (Continuous(6, 24), Policy, LowestRank, 7, True),
    "prefix hits and swap": (Continuous(6, 24), Policy, lambda: LowestRank(mode=Mode.SWAP), 7, True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_byte_for_byte_those_of_a_serial_run(shape, dtype, case):
    batching, policy, preemption, *cache = CASES[case]
    seen = run(shape, dtype, batching, policy(), preemption(), *cache)
    assert seen.logits == alone(shape, dtype)
    happened = {
        "displace": seen.preemptions,
        "preemption": seen.preemptions,
        "recomputation": seen.recomputed,
        "swap": seen.swapped,
        "hits": seen.cached,
        "padding": seen.padding,
    }
    assert all(happened[word] > 0 for word in happened if word in case), f"{happened}: the case proves nothing"


def test_sampled_tokens_do_not_depend_on_the_batch_either():
    paged = engine("tiny", "fp32", 64)
    paged.temperature = 0.8
    try:
        outputs = []
        for batching in (Static(1, 512), Continuous(10, 7)):
            paged.logits = {}
            paged.begin(ARRIVALS, Streams(0))
            recorder = Recorder()
            serve(source(ARRIVALS, Point()), Scheduler(BlockPool(64, 16), None, batching), paged, paged.clock(), recorder)
            outputs.append({req.id: paged.output(req) for req in recorder.states})
    finally:
        paged.temperature = 0.0
    assert outputs[0] == outputs[1]
    assert len({token for output in outputs[0].values() for token in output}) > 20, "it does not sample"


def test_warm_up_leaves_no_trace(monkeypatch):
    """Whether it ran or not, the requests find an empty cache and get the same tokens."""
    steps: list[int] = []
    launch = ModelRunner.launch
    monkeypatch.setattr(ModelRunner, "launch", lambda self, rows, *more: steps.append(1) or launch(self, rows, *more))
    warm = Watched("cpu", 16, 64, dtype="fp32")
    warm.open(Random(TINY))
    assert steps and not warm.runner.cache.all.any()
    monkeypatch.setattr(opening, "warm_up", lambda runner, *most: None)
    cold = Watched("cpu", 16, 64, dtype="fp32")
    cold.open(Random(TINY))
    logits = []
    for paged in (warm, cold):
        paged.logits = {}
        paged.begin(ARRIVALS, Streams(0))
        scheduler = Scheduler(BlockPool(64, 16), None, Continuous(4, 64))
        serve(source(ARRIVALS, Point()), scheduler, paged, paged.clock(), Recorder())
        logits.append(paged.logits)
    assert logits[0] == logits[1]


class Late(Paged):
    """A paged engine on a virtual clock that counts the steps that were planned over."""

    def clock(self) -> VirtualClock:  # type: ignore[override]
        return VirtualClock()

    def read(self, step: Step) -> Result:
        self.forecasts = getattr(self, "forecasts", 0) + (step.forecast is not None)
        return replace(super().read(step), durations=[1.0])


OVERLAPPED = [name for name in CASES if any(word in name for word in ("displace", "small", "chunks", "large"))]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("case", OVERLAPPED)
def test_a_step_in_flight_changes_no_token(monkeypatch, case, temperature):
    """mini-sglang#67, #103, #48245, #28787: finished requests scheduled once more, metadata overwritten, placeholders left.

    The device does its work as late as it may: only when somebody waits for it.
    """
    batching, policy, preemption, *cache = CASES[case]
    num_blocks, prefix_cache = (*cache, *(64, False)[len(cache) :])
    outputs = []
    for overlap in (False, True):
        if overlap:
            monkeypatch.setattr(runner, "stream_of", lambda device: delayed.DelayedStream())
        paged = Late("cpu", 16, num_blocks, dtype="fp32", temperature=temperature, overlap=overlap)
        facts = paged.open(Random(TINY))
        paged.begin(ARRIVALS, Streams(0))
        pool = PrefixPool(num_blocks, 16, paged.content) if prefix_cache else BlockPool(num_blocks, 16)
        recorder = Recorder()
        scheduler = Scheduler(pool, policy(), batching, Admission(), preemption())
        serve(source(ARRIVALS, Point()), scheduler, paged, paged.clock(), recorder)
        outputs.append({req.id: paged.output(req) for req in recorder.states})
        assert (facts["overlap"] == "one step in flight") == overlap == (paged.forecasts > 0)
        assert all(len(recorder.times[req.id]) == req.emitted for req in recorder.states) and not recorder.under_way
        assert recorder.count == len(recorder.steps)
    assert outputs[0] == outputs[1]
    assert all(token >= 0 for output in outputs[1].values() for token in output), "a placeholder was left"


def test_work_is_counted_from_begin_to_begin():
    paged = engine("tiny", "fp32", 64)
    paged.logits = {}
    paged.begin(ARRIVALS, Streams(0))
    assert paged.work()["flops"] == paged.work()["bytes"] == 0
    recorder = Recorder()
    serve(source(ARRIVALS, Point()), Scheduler(BlockPool(64, 16), None, Continuous(4, 64)), paged, paged.clock(), recorder)
    work = paged.work()
    tokens = sum(PROMPTS) + sum(OUTPUTS) - len(OUTPUTS)
    assert paged._work.tokens == tokens and paged._work.logits == sum(OUTPUTS) and paged._work.steps == recorder.count
    assert work["forward_s"] > 0 and work["peak_flops"] > 0
    paged.begin(ARRIVALS, Streams(0))
    assert paged.work()["flops"] == 0
