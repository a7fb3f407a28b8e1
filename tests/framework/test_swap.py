"""Preemption by swap: what is copied, when, and what becomes of the copy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from slotlab import Closed, Evict, Mode, Open, Plan, Preemption, Request, RequestState, Status, Streams
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import Newest


@dataclass
class Itself(Preemption):
    """The requester gives way itself."""

    def victims(self, need, requester, candidates, view):
        return [Evict(requester, Mode.SWAP)]


def test_a_victim_is_copied_before_its_blocks_are_given_away_and_comes_back_without_computing(bench):
    policy = Priority(displace=True)
    desk = bench(8, 2, policy=policy, preemption=Newest(mode=Mode.SWAP), batching=Continuous(1, 64))
    low = desk.submit(5, 4, priority=1)
    desk.step()
    held = list(low.blocks)
    urgent = desk.submit(3, 1, priority=0)
    plan = desk.step()
    assert (plan.swap_out, plan.swap_in) == ({low: held[:3]}, {}), "five tokens in three blocks"
    assert set(urgent.blocks) <= set(range(8)) and low.swapped == 5
    plan = desk.step()
    assert (plan.swap_out, plan.swap_in, plan.tokens) == ({}, {low: low.blocks[:3]}, {low: 1})
    desk.run_dry()
    assert (low.status, low.recomputed, low.preemptions) == (Status.FINISHED, 0, 1)


@dataclass
class OneIdles(Continuous):
    """The second request gets no tokens once it decodes; nobody starts from `shut` on."""

    shut: float = math.inf

    def quota(self, req, left, view):
        return 0 if req.id == 1 and req.emitted else left

    def gate(self, view):
        return Open() if view.now < self.shut else Closed(view.now + 1)


def test_copies_of_a_step_that_only_evicted_are_made_in_the_one_that_computes(bench):
    """The first gives way itself and nobody computes, so the step is planned again: there is room for the third."""
    desk = bench(4, 2, policy=Priority(), preemption=Itself(), batching=OneIdles(2, 64))
    first, _ = desk.submit(4, 3, priority=1), desk.submit(4, 3)
    desk.step()
    third = desk.submit(1, 1)
    plan = desk.step()
    assert ({*plan.swap_out}, {*plan.tokens}, plan.preempted) == ({first}, {third}, 1)
    assert first.swapped == 4


def test_copies_that_are_due_wait_for_a_step_that_computes_or_for_the_end_of_the_request(bench):
    desk = bench(4, 2, preemption=Itself(), batching=OneIdles(2, 64, shut=1.0))
    first, _ = desk.submit(4, 3), desk.submit(4, 3)
    desk.step()
    for _ in range(2):
        assert not desk.plan()
        assert [*desk.scheduler.copies_due] == [first]
    desk.scheduler.abort(first)
    assert desk.scheduler.copies_due == {}


def test_a_prefix_hit_that_is_longer_than_the_copy_is_taken_instead(bench):
    policy = Priority(displace=True)
    options = {"policy": policy, "preemption": Newest(mode=Mode.SWAP), "batching": Continuous(1, 3)}
    desk = bench(16, 1, content=lambda req, block: block, **options)
    low = desk.submit(8, 2, priority=1)
    desk.step()
    urgent = desk.submit(8, 1, priority=0)
    while urgent.status is not Status.FINISHED:
        desk.step()
    assert low.swapped == 6
    plan = desk.step()
    assert (plan.swap_in, plan.tokens, low.swapped) == ({}, {low: 1}, 0)
    assert low.cached == 1, "the seventh token, which it had never computed; the first six are no hit"


@pytest.mark.parametrize(("cost", "seconds"), [("linear", 1.0 + 0.1 + 5 * 0.25), ("unit", 1.0)])
def test_the_simulated_engine_charges_for_each_block_out_and_back(cost, seconds):
    made = Simulated(cost=cost, per_step=1.0, per_token=0.1, per_context=0.0, per_swapped_block=0.25)
    made.begin([], Streams(0))
    made._lengths = [9, 9]
    out, back = (RequestState.of(Request(i, 0.0, 4, 9), i, 9, 0.0) for i in range(2))
    back.computed, back.emitted = 4, 1
    plan = Plan(tokens={back: 1}, swap_out={out: [1, 2, 3]}, swap_in={back: [4, 5]})
    assert made.submit(plan).result().durations == [pytest.approx(seconds)]
