"""EDF: the earliest deadline first, and what becomes of those who must miss it. One slot, steps of one time unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Policy, Request, Result, UserError
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.edf import EDF
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import LowestRank


@dataclass
class PlainEDF(Policy):
    """EDF without relegation."""

    def key(self, req):
        return math.inf if req.deadline is None else req.deadline


# arrival, output tokens, priority, seconds to the deadline; below a to f, with deadlines none, 6, 3, 4, 3, 10
ROWS = [(0, 4, 1, None), (0, 3, 0, 6), (0, 2, 2, 3), (1, 2, 0, 3), (1, 3, 1, 2), (2, 1, 2, 8)]

# Prompts are of one token, so the first token comes one after the start.
TABLES = [
    # c (3); at 2 e (3); at 5 d (4) is late, so b (6); at 8 f (10); at 9 a, who has none; at 13 d
    (EDF(), [13, 8, 2, 15, 5, 9]),
    # who needs 2 for its prompt must start at 4, 1, 2, 1, 8 (b to f): at 0 c; at 2 e is late, so d; at 4 b; f; a; e
    (EDF(service=2.0), [12, 7, 2, 4, 15, 8]),
    # at 5 d (4) is served though it is late, then b (6) and f (10) are late too
    (PlainEDF(), [15, 10, 2, 7, 5, 11]),
    # b, d, a, e, c, f
    (Priority(), [9, 3, 14, 5, 12, 15]),
    (FCFS(), [4, 7, 9, 11, 14, 15]),
]


def finish(run, arrivals, policy, **options):
    recorder = run(arrivals, policy, **options)
    return [recorder.times[id][-1] for id in range(len(arrivals))]


def draw(rng, n=30, at_once=False):
    """Requests of which some have deadlines, as many past as kept."""
    time, rows = 0.0, []
    for _ in range(n):
        time += 0 if at_once else rng.choice([0, 0, 1, 3])
        deadline = rng.choice([None, rng.uniform(0, 60), rng.randint(1, 60)])
        length = rng.randint(1, 6)
        rows.append(Arrival(time, rng.randint(1, 20), 6, length, deadline=deadline))
    return rows


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("policy", "expected"), TABLES)
def test_a_schedule_worked_out_by_hand(run, policy, expected, jump):
    arrivals = [Arrival(float(time), 1, n, n, priority=priority, deadline=left) for time, n, priority, left in ROWS]
    assert finish(run, arrivals, replace(policy), jump=jump) == expected


def test_it_differs_from_its_siblings():
    assert len({tuple(expected) for _, expected in TABLES}) == len(TABLES)


def test_relegation_keeps_deadlines_past_saturation(run):
    """Twice the load of the engine: one request per time unit takes two. Without relegation each misses by a little.

    With `service=0` still those do whose turn comes last, for the first token comes one time unit after the start.
    """
    arrivals = [Arrival(float(time), 1, 2, 2, deadline=[3.0, 9.0, 20.0][time % 3]) for time in range(90)]
    kept = []
    for policy in (FCFS(), PlainEDF(), EDF(), EDF(service=1.0)):
        recorder = run(arrivals, policy)
        kept.append(sum(recorder.times[id][0] <= row.time + row.deadline for id, row in enumerate(arrivals)))
    assert kept == [10, 11, 28, 53]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 4), service=st.sampled_from([0.0, 0.5]), at_once=st.booleans())
def test_starts_are_in_the_order_of_deadlines_and_the_late_wait_for_all_others(run, rng, slots, service, at_once):
    """When all wait from the start and whenever they come. The KV suffices: nobody starts twice."""

    @dataclass
    class Watched(EDF):
        def arrived(self, req, view):
            super().arrived(req, view)
            self.view = view

        def place(self, req):
            deadline = math.inf if req.deadline is None else req.deadline
            late = self.view.now > deadline - self.service * req.prompt_tokens
            return late, req.arrival if late else deadline, req.seq

        def started(self, req, cached):
            assert all(self.place(other) > self.place(req) for other in self.view.waiting)

    run(draw(rng, at_once=at_once), Watched(service), slots=slots)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    rng=st.randoms(use_true_random=False),
    slots=st.integers(1, 4),
    blocks=st.integers(25, 60),
    service=st.sampled_from([0.0, 0.5]),
)
def test_jumps_equal_single_steps(run, rng, slots, blocks, service):
    arrivals = draw(rng)
    single, jumped = (
        finish(run, arrivals, EDF(service), slots=slots, blocks=blocks, preemption=LowestRank(), jump=jump)
        for jump in (False, True)
    )
    assert single == jumped


@pytest.mark.parametrize("jump", [False, True])
def test_a_jump_ends_when_the_next_one_is_late(run, jump):
    """b (63 blocks of 64) does not fit beside a; after 8.5 it is late, and c (no deadline, 2 blocks) goes before it."""
    rows = [(0.0, 1, 60, None), (1.0, 63, 2, 7.5), (1.0, 2, 2, None)]
    arrivals = [Arrival(time, prompt, n, n, deadline=deadline) for time, prompt, n, deadline in rows]
    recorder = run(arrivals, EDF(), slots=3, blocks=64, jump=jump)
    assert [req.started for req in recorder.states] == [0.0, 60.0, 9.0]
    assert (len(recorder.steps) < recorder.count) == jump


def test_who_has_emitted_is_not_late(run):
    """b (deadline 5) is preempted at 2 with two tokens out; at 6 it goes before c (deadline 100), beside whom it does not fit."""
    rows = [(3, 6, 2.0), (3, 6, 5.0), (5, 2, 100.0)]
    arrivals = [Arrival(0.0, prompt, n, n, deadline=deadline) for prompt, n, deadline in rows]
    recorder = run(arrivals, EDF(), slots=2, blocks=9, preemption=LowestRank())
    assert [req.preemptions for req in recorder.states] == [0, 1, 0]
    assert recorder.states[2].started == recorder.times[1][-1]


def test_who_has_gone_since_the_order_was_asked_for_is_not_named():
    """Late ones of both kinds: a and b were moved when d arrived, c has become late since."""
    scheduler = Scheduler(BlockPool(4096, 1), EDF())
    for id, (time, deadline) in enumerate([(0.0, 1.0), (0.0, 1.0), (0.0, 5.0), (3.0, None)]):
        scheduler.submit(Request(id, time, 1, 1, deadline=deadline), time)
    scheduler.view.now = 6.0
    order = scheduler.plugins.policy.order(scheduler.books.waiting, scheduler.view)
    assert [next(order).id, next(order).id] == [3, 0]
    waiting = scheduler.books.waiting
    assert (waiting.count(False), waiting.count(True)) == (2, 2)
    scheduler.abort(next(req for req in waiting if req.id == 2))
    assert [req.id for req in order] == [1]


def serve_all(policy, deadlines, slots=4):
    """Serve requests of one token, all there at 0, in steps of one time unit; what each step cost the policy in looks."""
    scheduler, looks, now = Scheduler(BlockPool(4096, 1), policy, Continuous(slots, 512)), [], 0.0
    for id, deadline in enumerate(deadlines):
        scheduler.submit(Request(id, 0.0, 1, 1, deadline=deadline), 0.0)
    while scheduler.unfinished:
        policy.looks = 0
        plan, now = scheduler.plan(now), now + 1.0
        scheduler.commit(plan, Result([1.0], [1] * len(plan.tokens)), now)
        looks.append(policy.looks)
    return looks


@dataclass
class Counted(EDF):
    """How often it is asked about a request."""

    looks: int = 0

    def latest_start(self, req):
        self.looks += 1
        return super().latest_start(req)


def test_a_step_looks_at_those_who_start_and_at_those_who_have_just_become_late():
    """2,000 requests wait; 4 start in each step."""
    assert max(serve_all(Counted(), [1e6 + id for id in range(2000)])) <= 10
    assert max(serve_all(Counted(), [None] * 2000)) <= 10
    looks = serve_all(Counted(), [float(id // 8) for id in range(2000)])  # 8 become late in a step, or 4 that have not started
    assert max(looks) <= 30
    looks = serve_all(Counted(), [100.0] * 2000)  # 1,600 become late at once, and are moved once
    assert sum(looks) <= 3 * 2000


def test_an_option_out_of_range_is_refused():
    with pytest.raises(UserError, match=r"^service=-1.0: must be at least 0 and at most 1e\+09$"):
        EDF(service=-1.0)
