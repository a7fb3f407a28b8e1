"""Faults that other engines had in public, each as the smallest scenario that would show it here, on the real engine.

Numbers are of vllm-project/vllm unless a repository is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from slotlab import Admission, Arrival, Batching, Mode, Model, Point, Request, Result, Status, Streams
from slotlab.clock import VirtualClock
from slotlab.core.blocks import BlockPool
from slotlab.core.prefix import PrefixPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.paged import Paged, Step
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import Newest

SIZE = 4


class Tiny(Model):
    def __init__(self, context: int = 512) -> None:
        self.llama_shape = replace(TINY, max_context=context)

    def load(self, device: torch.device, dtype: torch.dtype) -> Any:
        return random_llama(self.llama_shape, device, dtype, seed=0)

    def origin(self) -> str:
        return "random"


class Stepping(Paged):
    """On a virtual clock of unit steps."""

    def clock(self) -> VirtualClock:  # type: ignore[override]
        return VirtualClock()

    def read(self, step: Step) -> Result:
        return replace(super().read(step), durations=[1.0])


@dataclass
class Outcome:
    outputs: list[list[int]]
    recorder: Recorder

    @property
    def steps(self) -> int:
        return self.recorder.count


@pytest.fixture(scope="module")
def engine() -> Stepping:
    opened = Stepping("cpu", SIZE, 256, dtype="fp32")
    opened.open(Tiny())
    return opened


def run(engine: Stepping, arrivals: Sequence[Arrival], blocks: int = 256, prefix_cache: bool = False, **plugins: Any) -> Outcome:
    """Serve to the end; the pool's books are checked after every step."""
    engine.begin(arrivals, Streams(0))
    pool = PrefixPool(blocks, SIZE, engine.content) if prefix_cache else BlockPool(blocks, SIZE)
    plugins.setdefault("batching", Continuous(8, 512))
    scheduler, recorder = Scheduler(pool, **plugins, max_context=engine.runner.limits.max_context), Recorder(block_size=SIZE)
    commit = scheduler.commit

    def checked(*args: Any) -> None:
        commit(*args)
        scheduler.books.check()

    scheduler.commit = checked  # type: ignore[method-assign]
    serve(source(arrivals, Point()), scheduler, engine, engine.clock(), recorder)
    assert pool.available == blocks, "blocks are missing at the end"
    return Outcome([engine.output(req) for req in recorder.states], recorder)


def ask(*shapes: tuple[int, int], **other: Any) -> list[Arrival]:
    """Requests that come at once: prompt, output."""
    return [Arrival(0.0, prompt, output, output, **other) for prompt, output in shapes]


def alone(engine: Stepping, arrivals: Sequence[Arrival]) -> list[list[int]]:
    """What a roomy engine answers to one after the other."""
    return run(engine, arrivals, batching=Continuous(1, 512)).outputs


def test_a_preempted_request_that_finds_its_own_blocks_goes_on_where_it_was(engine):
    """nano-vllm#211: the count of tokens was taken before the prefix hit of the request that came back."""
    arrivals = ask((5, 6), (5, 6))
    squeezed = run(engine, arrivals, blocks=4, prefix_cache=True, preemption=Newest())
    assert sum(req.preemptions for req in squeezed.recorder.states) > 0
    assert squeezed.outputs == alone(engine, arrivals)


def test_a_chunk_attends_to_what_was_computed_and_not_to_the_whole_prompt(engine):
    """nano-vllm#212, #213: the length of the keys was that of the prompt, not the chunk's end."""
    arrivals = ask((300, 4))
    assert (
        run(engine, arrivals, batching=Continuous(1, 100)).outputs == run(engine, arrivals, batching=Continuous(1, 512)).outputs
    )


@pytest.mark.parametrize("prompt", [SIZE - 1, SIZE, SIZE + 1, 2 * SIZE])
def test_a_block_is_taken_when_its_first_token_is_computed(engine, prompt):
    """nano-vllm#30, #66: off by one at a block's end, with a single free block."""
    arrivals = ask((prompt, SIZE))
    blocks = math.ceil((prompt + SIZE - 1) / SIZE)
    assert run(engine, arrivals, blocks=blocks, admission=Admission()).outputs == alone(engine, arrivals)


def test_a_request_longer_than_the_context_is_refused_and_one_just_as_long_is_served():
    """nano-vllm and mini-sglang#68: a prompt past the model's length broke the block table of a decode."""
    short = Stepping("cpu", SIZE, 64, dtype="fp32")
    short.open(Tiny(context=32))
    states = run(short, ask((30, 3), (30, 4)), blocks=64).recorder.states
    assert [req.status for req in states] == [Status.FINISHED, Status.REJECTED]
    assert states[1].reason == "prompt 30 + max_tokens 4 exceed the context of 32"


def test_one_block_and_a_sequence_that_needs_two_is_a_refusal(engine):
    """tenstorrent/tt-inference-server#2042, llama.cpp#3969: it was its own victim and planned too, or went round for ever."""
    outcome = run(engine, ask((3, 4)), blocks=1)
    assert outcome.recorder.states[0].reason == "needs 2 KV blocks of 1" and outcome.steps == 0


def test_idle_blocks_that_are_overwritten_belong_to_one_request(engine):
    """mini-sglang#80, sglang#35270: pages overlapped after an eviction; what was free and cached did not add up to the pool."""
    arrivals = ask(*[(9, 3)] * 6, prefix_group=0, prefix_tokens=8) + ask(*[(9, 3)] * 6)
    assert run(engine, arrivals, blocks=8, prefix_cache=True).outputs == alone(engine, arrivals)


def test_after_a_cancel_no_token_comes_and_all_blocks_are_back(engine):
    """sglang#34112: a token appeared after the cancel."""
    engine.begin(ask((6, 9), (6, 9)), Streams(0))
    scheduler = Scheduler(BlockPool(8, SIZE), batching=Batching(4, 64))
    first, second = (scheduler.submit(Request(i, 0.0, 6, 9), 0.0) for i in range(2))
    for now in (0.0, 1.0):
        plan = scheduler.plan(now)
        scheduler.commit(plan, engine.submit(plan).result(), now + 1.0)
    scheduler.abort(first)
    said = len(engine.output(first))
    while scheduler.unfinished:
        plan = scheduler.plan(2.0)
        scheduler.commit(plan, engine.submit(plan).result(), 3.0)
    assert (len(engine.output(first)), len(engine.output(second))) == (said, 9) == (2, 9)
    assert scheduler.view.free_blocks == 8


def test_an_urgent_arrival_gets_its_place_in_the_step_in_which_it_comes(engine):
    """sglang#14872: "full" was set after the check, so nobody was preempted."""
    arrivals = [Arrival(0.0, 6, 9, 9, priority=1), Arrival(2.0, 6, 3, 3, priority=0)]
    plugins = {"policy": Priority(displace=True), "preemption": Newest(), "batching": Continuous(1, 64)}
    outcome = run(engine, arrivals, **plugins)
    assert outcome.recorder.states[1].started == 2.0
    assert outcome.outputs == alone(engine, arrivals)


def test_blocks_given_back_twice_are_given_back_once():
    """#42571: the same block stood twice in the free list."""
    for pool in (BlockPool(4, 1), PrefixPool(4, 1, lambda req, block: (req.id, block))):
        req = Scheduler(pool).submit(Request(0, 0.0, 2, 1), 0.0)
        assert pool.grow(req, 3)
        pool.release(req)
        pool.release(req)
        pool.check([])


def test_what_an_earlier_run_left_in_the_cache_is_never_read(engine):
    """#47305, #30887: NaN from what was not written yet."""
    arrivals = ask((5, 6), (17, 6), (1, 3))
    expected = alone(engine, arrivals)
    engine.begin(arrivals, Streams(0))
    reset, engine.runner.reset = engine.runner.reset, lambda: engine.runner.cache.all.fill_(math.nan)  # type: ignore[method-assign]
    try:
        assert run(engine, arrivals).outputs == expected
    finally:
        engine.runner.reset = reset  # type: ignore[method-assign]


def test_eight_copies_at_once_are_one_alone(engine):
    """llama.cpp#7052, #6950, #7745: the same prompt in eight slots gave five to eight texts."""
    engine._words = {"the same": list(range(12))}
    arrivals = ask(*[(12, 10)] * 8, text="the same")
    together = run(engine, arrivals).outputs
    assert together == alone(engine, arrivals) and len({tuple(output) for output in together}) == 1


@pytest.mark.parametrize("mode", Mode)
def test_a_pool_for_two_serves_four_and_eight(engine, mode):
    """llama.cpp#23652: an exhausted pool aborted everybody. transformers#46587: one offloaded request stalled the rest."""
    for count in (4, 8):
        arrivals = ask(*[(6, 8)] * count)
        outcome = run(engine, arrivals, blocks=8, preemption=Newest(mode))
        assert all(req.status is Status.FINISHED for req in outcome.recorder.states)
        assert outcome.outputs == alone(engine, arrivals)
        assert outcome.steps <= sum(a.prompt_tokens + a.max_tokens for a in arrivals)


def test_a_second_run_on_one_engine_is_like_the_first(engine):
    """transformers#45943: the second call returned nothing, for request ids went on where the first had ended."""
    arrivals, options = ask((6, 8), (9, 4)), vars(engine).keys()
    assert run(engine, arrivals).outputs == run(engine, arrivals).outputs
    assert vars(engine).keys() == options


def test_an_exception_inside_a_step_leaves_the_engine_usable(engine, monkeypatch):
    arrivals = ask((6, 8), (9, 4))
    expected = run(engine, arrivals).outputs

    def broken(*args: Any) -> None:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner.model, "forward", broken)
        with pytest.raises(RuntimeError, match="a kernel failed"):
            run(engine, arrivals)
    assert run(engine, arrivals).outputs == expected


def test_a_closed_engine_keeps_no_memory():
    opened = Stepping("cpu", SIZE, 16, dtype="fp32")
    opened.open(Tiny())
    opened.begin(ask((6, 8)), Streams(0))
    opened.close()
    assert opened._runner is None and not opened._host and not opened._ids
