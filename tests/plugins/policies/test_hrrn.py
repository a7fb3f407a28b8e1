"""HRRN: the highest ratio of prompt tokens waited to prompt tokens needed. One slot, one output token: a request a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Policy, Request, Result
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.hrrn import HRRN


@dataclass
class ShortestPrompt(Policy):
    """What HRRN is without the wait."""

    def key(self, req):
        return req.prompt_tokens


ROWS = [(0, 10), (0, 40), (0, 8), (2, 6), (3, 5), (3, 2)]  # arrival, prompt tokens; below a to f

TABLES = [
    # clock 0: nobody has waited, a (10). Clock 10: b 10/40, c 10/8: c (8). Clock 18: b 18/40, d 0/6: b (40) before the newcomer.
    # Clock 58: d 40/6, e 0/5, f 0/2: d (6). Clock 64: e 6/5, f 6/2: f, then e
    (HRRN(), [1, 3, 2, 4, 6, 5]),
    # c, a, then d (6) before b (40), f, e, and b at the very end
    (ShortestPrompt(), [2, 6, 1, 3, 5, 4]),
    (FCFS(), [1, 2, 3, 4, 5, 6]),
]


def finish(run, arrivals, policy, **options):
    recorder = run(arrivals, policy, **options)
    return [recorder.times[id][-1] for id in range(len(arrivals))]


def draw(rng, n=30):
    """Bursts of requests with prompts of a few lengths."""
    time, rows = 0.0, []
    for _ in range(n):
        time += rng.choice([0, 0, 1, 3])
        length = rng.randint(1, 6)
        rows.append(Arrival(time, rng.choice([1, 2, 5, 20]), 6, length))
    return rows


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("policy", "expected"), TABLES)
def test_a_schedule_worked_out_by_hand(run, policy, expected, jump):
    assert finish(run, [Arrival(float(time), n, 1, 1) for time, n in ROWS], policy, jump=jump) == expected


def test_it_differs_from_its_siblings():
    assert len({tuple(expected) for _, expected in TABLES}) == len(TABLES)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 4), blocks=st.integers(25, 80))
def test_nobody_who_waited_longer_for_less_is_passed_over(run, rng, slots, blocks):
    """And, in exact fractions, nobody of a higher ratio."""

    @dataclass
    class Watched(HRRN):
        came: dict[int, int] = field(default_factory=dict)

        def arrived(self, req, view):
            super().arrived(req, view)
            self.view, self.came[req.id] = view, view.prefill_clock

        def started(self, req, cached):
            mine = self.view.prefill_clock - self.came[req.id]
            for other in self.view.waiting:
                wait = self.view.prefill_clock - self.came[other.id]
                assert not (wait > mine and other.prompt_tokens < req.prompt_tokens)
                assert Fraction(wait, other.prompt_tokens) <= Fraction(mine, req.prompt_tokens)

    run(draw(rng), Watched(), slots=slots, blocks=blocks, batching=Continuous(slots, 24))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 4), blocks=st.integers(25, 80))
def test_jumps_equal_single_steps(run, rng, slots, blocks):
    arrivals = draw(rng)
    single, jumped = (finish(run, arrivals, HRRN(), slots=slots, blocks=blocks, jump=jump) for jump in (False, True))
    assert single == jumped


def test_a_step_looks_at_one_request_per_prompt_length_and_start():
    """2,000 requests of 5 lengths wait; 4 of them start in each step."""

    @dataclass
    class Counted(HRRN):
        looks: int = 0

        def rank(self, req, view):
            self.looks += 1
            return super().rank(req, view)

    policy = Counted()
    scheduler, looks = Scheduler(BlockPool(4096, 1), policy, Continuous(4, 512)), []
    for id in range(2000):
        scheduler.submit(Request(id, 0.0, 1 + id % 5, 1), 0.0)
    while scheduler.unfinished:
        policy.looks = 0
        plan = scheduler.plan(0.0)
        looks.append(policy.looks)
        scheduler.commit(plan, Result([1.0], [1] * len(plan.tokens)), 0.0)
    assert len(looks) == 500
    assert 5 <= max(looks) <= 5 + 4


def test_what_the_prefix_cache_holds_on_arrival_is_not_needed(monkeypatch):
    """b waits for 10 tokens as c does, but needs only 20 - 16 of them."""
    scheduler = Scheduler(BlockPool(4096, 1), HRRN(), Continuous(1, 512))
    monkeypatch.setattr(type(scheduler.view), "prefix_hits", lambda view, req: 16 if req.id == 1 else 0)
    for id, prompt in enumerate([10, 20, 5]):
        scheduler.submit(Request(id, 0.0, prompt, 1), 0.0)
    order = []
    while scheduler.unfinished:
        plan = scheduler.plan(0.0)
        order += [req.id for req in plan.tokens]
        scheduler.commit(plan, Result([1.0], [1] * len(plan.tokens)), 0.0)
    assert order == [0, 1, 2], "10/4 > 10/5 > 10/20"


def test_who_has_gone_since_the_order_was_asked_for_is_not_named():
    """A modifier may start or hide the head of another lane."""
    scheduler = Scheduler(BlockPool(4096, 1), HRRN())
    a, b, c = [scheduler.submit(Request(id, 0.0, 1 + id, 1), 0.0) for id in range(3)]
    order = iter(scheduler.plugins.policy.order(scheduler.books.waiting, scheduler.view))
    assert next(order) is a
    scheduler.abort(b)
    assert list(order) == [c]


def test_nothing_is_kept_of_those_who_left(run):
    policy = HRRN()
    run([Arrival(0.0, 3, 5, 5)] * 4 + [Arrival(1.0, 90, 5, 5)], policy, slots=2, blocks=12)
    assert not (policy._since or policy._need)
