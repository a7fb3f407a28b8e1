"""Who starts, and with how much."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slotlab import (
    Accept,
    Admission,
    Batching,
    Hold,
    Misfit,
    Phase,
    Policy,
    Preemption,
    Status,
    StepBudget,
    Verdict,
)
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous


@dataclass
class Witness(Policy):
    """Writes down who started."""

    events: list[int] = field(default_factory=list)

    def started(self, req, cached):
        self.events.append(req.id)


@dataclass
class Skipping(Policy):
    """Goes on to the next when one does not fit."""

    def on_misfit(self, req, why, view):
        return Verdict.SKIP


@pytest.mark.parametrize("cap", [0, 1, 4])
def test_a_skipped_request_is_bypassed_no_more_than_the_core_allows(bench, cap):
    desk = bench(blocks=20, policy=Skipping(), batching=Continuous(8, 64), max_bypass=cap)
    desk.submit(4, 12)
    desk.step()
    big, small = desk.submit(18, 2), [desk.submit(1, 1) for _ in range(7)]
    plan = desk.plan()
    assert [req in plan.tokens for req in small] == [True] * cap + [False] * (7 - cap)
    assert big.bypassed == cap
    desk.execute(plan)
    assert desk.plan().started == 0, "at the cap SKIP acts as STOP"


def test_a_paused_request_gives_its_slot_to_a_waiting_one_and_gets_free_slots_back(bench):
    @dataclass
    class Rest(Policy):
        def order_running(self, running, view):
            return [req for req in running if req.id != 0]

    desk = bench(policy=Rest(), batching=Continuous(1, 64))
    rested = desk.submit(2, 4)
    desk.step()
    assert desk.step().tokens == {rested: 1}, "nobody else wants the slot"
    other = desk.submit(2, 2)
    plan = desk.step()
    assert (plan.tokens, plan.seated, plan.paused) == ({other: 2}, [other], [rested])
    assert (rested.status, rested.computed) == (Status.RUNNING, 3)
    desk.step()
    assert desk.step().tokens == {rested: 1}


def test_a_paused_request_that_lacks_kv_does_not_keep_the_slot_from_the_next_one(bench):
    @dataclass
    class PauseAll(Policy):
        def order_running(self, running, view):
            return []

    @dataclass
    class Nobody(Preemption):
        def victims(self, need, requester, candidates, view):
            return []

    desk = bench(blocks=3, size=4, policy=PauseAll(), batching=Continuous(2, 64), preemption=Nobody())
    full, roomy = desk.submit(8, 2), desk.submit(3, 2)
    desk.step()
    desk.scheduler.plugins.batching.max_num_seqs = 1
    assert desk.step().tokens == {roomy: 1}
    assert full.computed == 8


@pytest.mark.parametrize("phase", Phase)
def test_phases_decide_who_gets_the_tokens_first(bench, phase):
    @dataclass
    class Phased(Batching):
        def budget(self, view):
            return StepBudget(4, 6, phase)

    desk = bench(batching=Phased(4, 6))
    decode = desk.submit(1, 9)
    desk.step()
    prefill = desk.submit(11, 2)
    desk.step()
    plan = desk.plan()
    expected = {
        Phase.MIXED: {decode: 1, prefill: 5},
        Phase.DECODE_FIRST: {decode: 1, prefill: 5},
        Phase.PREFILL_FIRST: {prefill: 5, decode: 1},
        Phase.PREFILL_ONLY: {prefill: 5},
    }
    assert plan.tokens == expected[phase]
    assert next(iter(plan.tokens)) is (prefill if phase in (Phase.PREFILL_FIRST, Phase.PREFILL_ONLY) else decode)


def test_prefill_only_runs_paused_requests_when_there_is_nobody_else(bench):
    @dataclass
    class PauseAll(Policy):
        def order_running(self, running, view):
            return []

    @dataclass
    class PrefillOnly(Batching):
        def budget(self, view):
            return StepBudget(2, 4, Phase.PREFILL_ONLY)

    desk = bench(policy=PauseAll(), batching=PrefillOnly(2, 4))
    desk.submit(9, 2)
    assert [req.status for req in desk.run_dry()] == [Status.FINISHED]


def test_without_chunks_a_prefill_is_computed_whole_or_not_at_all(bench):
    @dataclass
    class Whole(Batching):
        def budget(self, view):
            return StepBudget(4, 8, chunked=False)

    desk = bench(batching=Whole(4, 8))
    first, second = desk.submit(5, 2), desk.submit(5, 2)
    plan = desk.step()
    assert (plan.tokens, plan.bound) == ({first: 5}, "tokens")
    assert desk.step().tokens == {first: 1, second: 5}


def test_the_number_of_prefills_in_a_step_can_be_capped(bench):
    @dataclass
    class One(Batching):
        def budget(self, view):
            return StepBudget(4, 8, prefills=1)

    desk = bench(batching=One(4, 8))
    first, second = desk.submit(5, 2), desk.submit(3, 2)
    assert desk.step().tokens == {first: 5}
    assert desk.step().tokens == {first: 1, second: 3}


@pytest.mark.parametrize(("answer", "blocks"), [(0, 2), (1, 2), (6, 2), (9, 3), (13, 4), (10**6, 5)])
def test_a_reservation_is_raised_to_the_first_chunk_and_clamped_to_what_can_ever_be_needed(bench, answer, blocks):
    @dataclass
    class Reserve(Admission):
        def reserve(self, req, view):
            return answer

    desk = bench(blocks=9, size=4, admission=Reserve())
    req = desk.submit(6, 15)  # 20 tokens at most
    desk.step()
    assert req.num_blocks == blocks


def test_a_watermark_keeps_blocks_free_unless_nothing_runs(bench):
    desk = bench(blocks=10, admission=Prompt(watermark=0.5))
    first = desk.submit(8, 2)
    assert desk.step().tokens == {first: 8}, "an empty engine takes what fits"
    second = desk.submit(1, 2)
    plan = desk.step()
    assert (plan.bound, second.status) == ("kv", Status.WAITING)
    assert desk.step().tokens == {second: 1}


def test_held_requests_are_invisible_until_their_time_and_keep_their_number(bench):
    @dataclass
    class NotBefore(Admission):
        def admit(self, req, view):
            return Accept() if view.now >= 3.0 or req.id else Hold(3.0)

    policy = Witness()
    desk = bench(policy=policy, batching=Continuous(1, 64), admission=NotBefore())
    held, second = desk.submit(2, 5), desk.submit(2, 5)
    third = desk.submit(2, 5)
    assert held.status is Status.HELD
    assert (len(desk.scheduler.view.waiting), desk.scheduler.unfinished) == (2, True)
    plan = desk.plan()
    assert (list(plan.tokens), plan.until) == ([second], 3.0)
    desk.execute(plan)
    while second.status is Status.RUNNING:
        desk.step()
    desk.step()
    assert policy.events == [1, 0]
    assert (held.status, third.status) == (Status.RUNNING, Status.WAITING)


def test_every_misfit_is_told_with_its_reason(bench):
    seen: list[tuple[int, Misfit]] = []

    @dataclass
    class Asking(Policy):
        def on_misfit(self, req, why, view):
            seen.append((req.id, why))
            return Verdict.SKIP

    @dataclass
    class Caps(Batching):
        def budget(self, view):
            return StepBudget(3, 8, prefills=1)

    @dataclass
    class Picky(Admission):
        def reserve(self, req, view):
            return None if req.id == 1 else req.prompt_tokens

    desk = bench(blocks=12, policy=Asking(), batching=Caps(3, 8), admission=Picky())
    desk.submit(1, 9)
    desk.step()
    for prompt in (1, 12, 3, 2, 1, 1, 1):
        desk.submit(prompt, 1)
    desk.step()
    assert seen == [
        (1, Misfit.RESERVE),
        (2, Misfit.BLOCKS),
        (4, Misfit.PREFILLS),
        (6, Misfit.SLOTS),
        (7, Misfit.SLOTS),
    ]
