"""Who gives way, and what is left of it when a plan changes its mind."""

from __future__ import annotations

from dataclasses import dataclass, field

from slotlab import (
    Admission,
    Batching,
    Evict,
    Mode,
    Open,
    Policy,
    Preemption,
    Status,
    Verdict,
)
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.priority import Priority


@dataclass
class Witness(Policy):
    """Writes its events down."""

    events: list[tuple[str, int]] = field(default_factory=list)

    def started(self, req, cached):
        self.events.append(("started", req.id))

    def preempted(self, req, lost):
        self.events.append((f"lost {lost}" if req.preemptions else "undone", req.id))


@dataclass
class Skipping(Policy):
    """Goes on to the next when one does not fit."""

    def on_misfit(self, req, why, view):
        return Verdict.SKIP


@dataclass
class Chunk(Admission):
    """Commits the first chunk only."""

    def reserve(self, req, view):
        return 0


def facts(req):
    """All that the scheduler has written on a request."""
    return {name: getattr(req, name) for name in req.__slots__}


# Undo


def test_a_group_that_is_too_small_leaves_no_trace(bench):
    @dataclass
    class ByThrees(Batching):
        def gate(self, view):
            return Open(min_new=3)

    policy = Witness()
    desk = bench(blocks=16, content=lambda req, block: block, policy=policy, batching=ByThrees(4, 64))
    desk.scheduler.view.step, desk.scheduler.view.last_start = 7, 3
    pair = [desk.submit(3), desk.submit(3)]
    before = [facts(req) for req in pair]
    plan = desk.plan()
    assert not plan
    assert (plan.started, plan.preempted, plan.bound) == (0, 0, "gate")
    assert policy.events == [("started", 0), ("started", 1), ("undone", 1), ("undone", 0)]
    assert [facts(req) for req in pair] == [fact | {"prefix_hits": (0, [])} for fact in before]
    assert (desk.free, desk.scheduler.view.last_start) == (16, 3)
    desk.submit(3)
    assert list(desk.plan().tokens.values()) == [3, 3, 3]


def test_a_group_that_is_too_small_has_passed_nobody_over(bench):
    @dataclass
    class ByTwos(Batching):
        def gate(self, view):
            return Open(min_new=2)

    desk = bench(blocks=16, policy=Skipping(), batching=ByTwos(4, 64))
    desk.submit(10, 6)  # never more than one of the two big ones
    desk.scheduler.plugins.batching.gate = lambda view: Open()
    desk.step()
    del desk.scheduler.plugins.batching.gate
    big, _ = desk.submit(10, 6), desk.submit(1, 2)
    desk.step()
    assert (big.bypassed, len(desk.scheduler.books.running)) == (0, 1)
    desk.submit(1, 2)
    desk.step()
    assert (big.bypassed, len(desk.scheduler.books.running)) == (2, 3)


def test_a_victim_that_started_in_the_same_step_never_started(bench):
    """By age the old one goes first, by class the new one displaces it: both within one plan."""
    policy = Priority(aging=2.0, displace=True)
    desk = bench(blocks=16, policy=policy, batching=Continuous(1, 64))
    old = desk.submit(3, priority=1)
    desk.now = 5.0
    urgent = desk.submit(3, priority=0)
    plan = desk.plan()
    assert plan.tokens == {urgent: 3}
    assert (plan.started, plan.preempted, plan.kv_reserved) == (1, 0, 3)
    assert (old.status, old.preemptions, old.started, old.recomputed, old.high) == (Status.WAITING, 0, None, 0, 0)
    assert list(plan.seated) == [urgent]


def test_a_swapped_victim_that_restarts_and_is_undone_keeps_its_copy(bench):
    @dataclass
    class Swap(Preemption):
        def victims(self, need, requester, candidates, view):
            return [Evict(req, Mode.SWAP) for req in reversed(candidates)]

    @dataclass
    class Witnessed(Witness, Priority):
        pass

    policy = Witnessed(aging=2.0, displace=True)
    desk = bench(blocks=16, policy=policy, batching=Continuous(1, 64), preemption=Swap())
    old = desk.submit(3, priority=1)
    desk.step()
    desk.submit(3, 1, priority=0)
    assert [*desk.step().swap_out.values()] == [[2, 1, 0]], "copied out"
    assert policy.events[1] == ("lost 0", 0)
    assert (old.status, old.swapped, old.preemptions) == (Status.PREEMPTED, 3, 1)
    desk.now = 9.0
    desk.submit(3, 1, priority=0)  # `old` goes first by age, and is displaced at once
    assert desk.step().swapped_blocks == 0
    assert (old.status, old.swapped, old.preemptions) == (Status.PREEMPTED, 3, 1)
    plan = desk.step()
    assert (plan.swap_in, plan.tokens) == ({old: old.blocks[:3]}, {old: 1})
    assert old.recomputed == 0


# Displacement


def test_an_urgent_request_displaces_a_running_one_and_enters_in_that_step(bench):
    desk = bench(policy=Priority(displace=True), batching=Continuous(1, 64))
    slow = desk.submit(2, priority=1)
    desk.step()
    urgent = desk.submit(2, priority=0)
    plan = desk.plan()
    assert plan.tokens == {urgent: 2}
    assert (slow.status, slow.preemptions, slow.num_blocks, slow.high) == (Status.PREEMPTED, 1, 0, 2)
    assert (plan.started, plan.preempted) == (1, 1)


def test_an_equal_one_is_never_displaced(bench):
    desk = bench(policy=Priority(displace=True), batching=Continuous(1, 64))
    first = desk.submit(2, priority=1)
    desk.step()
    desk.submit(2, priority=1)
    assert desk.plan().tokens == {first: 1}


def test_displacement_is_all_or_nothing(bench):
    """Evicting the only worse one would not make room: it stays."""
    desk = bench(blocks=16, policy=Priority(displace=True), batching=Continuous(4, 64))
    equal, worse = desk.submit(8, 2, priority=0), desk.submit(4, 2, priority=1)
    desk.step()
    urgent = desk.submit(12, 2, priority=0)
    plan = desk.plan()
    assert plan.tokens == {equal: 1, worse: 1}
    assert (urgent.status, plan.preempted, plan.bound) == (Status.WAITING, 0, "kv")


def test_a_displacer_gets_the_tokens_of_its_victims(bench):
    desk = bench(policy=Priority(displace=True), batching=Continuous(2, 4))
    keeper, slow = desk.submit(1, priority=0), desk.submit(1, priority=1)
    desk.step()
    urgent = desk.submit(6, priority=0)
    assert desk.step().tokens == {keeper: 1, urgent: 3}
    assert slow.status is Status.PREEMPTED


def test_a_displacer_gets_no_more_than_the_blocks_it_was_promised(bench):
    """Once the victim is out more tokens are left than when the first chunk was measured, but not more blocks."""
    desk = bench(blocks=6, policy=Priority(displace=True), batching=Continuous(2, 4), admission=Chunk())
    keeper, slow = desk.submit(3, 3, priority=0), desk.submit(1, 3, priority=1)
    desk.step()
    urgent = desk.submit(6, 1, priority=0)
    assert desk.step().tokens == {keeper: 1, urgent: 2}
    assert slow.status is Status.PREEMPTED
    assert [req.status for req in desk.run_dry()] == [Status.FINISHED] * 3


def test_after_a_displacement_only_those_who_outrank_the_evicted_start(bench):
    desk = bench(blocks=12, policy=Priority(displace=True), batching=Continuous(4, 64))
    slow = desk.submit(8, 2, priority=2)
    desk.step()
    urgent, between = desk.submit(5, 2, priority=0), desk.submit(1, 2, priority=1)
    equal = desk.submit(1, 2, priority=2)  # would fit as well
    plan = desk.step()
    assert plan.tokens == {urgent: 5, between: 1}
    assert (slow.status, equal.status, plan.bound) == (Status.PREEMPTED, Status.WAITING, "kv")


def test_in_a_step_that_ran_out_of_kv_nobody_new_starts(bench):
    desk = bench(blocks=6, policy=Priority(), batching=Continuous(4, 64))
    first, second = desk.submit(3, 4, priority=1), desk.submit(3, 4, priority=1)
    desk.step()
    better = desk.submit(1, 1, priority=0)  # would fit into what the victim leaves
    plan = desk.step()
    assert plan.tokens == {first: 1}
    assert (second.status, better.status, plan.bound) == (Status.PREEMPTED, Status.WAITING, "kv")
    assert desk.step().tokens == {first: 1, better: 1}


def test_a_plan_that_only_evicted_is_made_again_at_once(bench):
    """Two half-done prefills lack more than the one decode gives back: it may as well go on."""

    @dataclass
    class Decodes(Preemption):
        def victims(self, need, requester, candidates, view):
            return [Evict(req) for req in candidates if req.emitted]

    @dataclass
    class Twelve(Batching):
        def quota(self, req, left, view):
            return 12

    desk = bench(blocks=8, size=4, batching=Twelve(4, 64), admission=Chunk(), preemption=Decodes())
    desk.submit(24, 1), desk.submit(24, 1)
    decode = desk.submit(1, 3)
    desk.step()
    plan = desk.step()
    assert plan.tokens == {decode: 2}
    assert (plan.preempted, plan.started, plan.repeat) == (1, 1, 1)


def test_the_requester_may_be_its_own_victim(bench):
    @dataclass
    class Selfless(Preemption):
        def victims(self, need, requester, candidates, view):
            return [Evict(requester)]

    desk = bench(blocks=6, batching=Continuous(2, 64), preemption=Selfless())
    first, second = desk.submit(3, 4), desk.submit(3, 4)
    desk.step()
    plan = desk.step()
    assert plan.tokens == {second: 1}
    assert (first.preemptions, plan.preempted) == (1, 1)
    assert [req.status for req in desk.run_dry()] == [Status.FINISHED] * 2


def test_nobody_is_displaced_for_a_group_that_is_too_small(bench):
    @dataclass
    class ByTwos(Batching):
        def gate(self, view):
            return Open(min_new=2) if view.running else Open()

    desk = bench(blocks=12, policy=Priority(displace=True), batching=ByTwos(4, 64))
    low = desk.submit(8, 4, priority=1)
    desk.step()
    high = desk.submit(8, 4, priority=0)
    desk.step()
    assert (low.status, low.preemptions, high.status) == (Status.RUNNING, 0, Status.WAITING)
    desk.run_dry()
