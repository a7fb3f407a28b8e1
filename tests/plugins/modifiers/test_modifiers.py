"""Modifiers: schedules of a few requests, worked out by hand, and what holds around every policy.

One slot, steps of one time unit, one token per step: a request of length n that starts at t and keeps its slot ends at t + n.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Modifier, Policy, Request, RequestState, UserError, Waiting
from slotlab.kinds import overrides
from slotlab.testing.fresh import fresh
from slotlab_plugins import collect
from slotlab_plugins.modifiers.aging import Aging
from slotlab_plugins.modifiers.bypass_cap import BypassCap
from slotlab_plugins.modifiers.pin_preempted import PinPreempted
from slotlab_plugins.modifiers.tenant_cap import TenantCap
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.lifo import LIFO
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.preemption.victims import LowestRank

# columns: arrival, output tokens, priority, tenant
STREAM_OF_SHORT = [(0, 3, 0, "a"), (0, 8, 0, "a"), (1, 2, 0, "a"), (2, 2, 0, "a"), (4, 2, 0, "a"), (6, 2, 0, "a")]
LATEST_FIRST = [(0, 6, 0, "a"), (0, 6, 0, "a"), (5, 2, 0, "a")]
FLOOD = [(0, 4, 0, "a"), (0, 4, 0, "a"), (0, 4, 0, "a"), (1, 2, 0, "b"), (1, 2, 0, "b")]


def around(policy: Policy, *modifiers: Modifier) -> Policy:
    """`policy` inside modifiers, the last one outermost."""
    return reduce(lambda inner, modifier: modifier.around(inner), map(replace, modifiers), replace(policy))


TABLES: list[tuple[Any, ...]] = [
    # the one of 8 tokens goes last, for there is always a shorter one
    (STREAM_OF_SHORT, 1, SJF(), (), [3, 19, 5, 7, 9, 11]),
    # at 7 it has waited for 7: it goes before the two that are left
    (STREAM_OF_SHORT, 1, SJF(), (Aging(after=7.0),), [3, 15, 5, 7, 17, 19]),
    # everybody has waited for 0: fcfs
    (STREAM_OF_SHORT, 1, SJF(), (Aging(after=0.0),), [3, 11, 13, 15, 17, 19]),
    # after one later start, that of request 2 at 3, it is due at 5
    (STREAM_OF_SHORT, 1, SJF(), (BypassCap(cap=1),), [3, 13, 5, 15, 17, 19]),
    # after three it is due at 9
    (STREAM_OF_SHORT, 1, SJF(), (BypassCap(cap=3),), [3, 17, 5, 7, 9, 19]),
    # eight blocks of one token: in the step from 4 on both need a fifth, and 0 gives way to 1; at 5 request 2 starts in one of
    # the two free ones and ends at 7; at 6, when 1 has ended, there are five for 0, which has two tokens to go
    (LATEST_FIRST, 2, LIFO(), (), [8, 6, 7]),
    # at 5 request 0 must be next, but needs five blocks; at 6 both start
    (LATEST_FIRST, 2, LIFO(), (PinPreempted(),), [8, 6, 8]),
    # a may have one of the two slots: b need not wait for 4
    (FLOOD, 2, FCFS(), (), [4, 4, 8, 6, 8]),
    (FLOOD, 2, FCFS(), (TenantCap(max_running=1),), [4, 8, 12, 3, 5]),
    # both: a's third has waited for 5 at 5, and goes before b's second if it may; it may not, for a runs already
    (FLOOD, 2, FCFS(), (Aging(after=0.0), TenantCap(max_running=1)), [4, 8, 12, 3, 5]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("table", "slots", "policy", "modifiers", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, table, slots, policy, modifiers, finish, jump):
    arrivals = [Arrival(float(time), 1, n, n, tenant, priority=priority) for time, n, priority, tenant in table]
    recorder = run(arrivals, around(policy, *modifiers), slots=slots, blocks=8, preemption=LowestRank(), jump=jump)
    assert [recorder.times[id][-1] for id in range(len(arrivals))] == finish


def draw(seed: int) -> list[Arrival]:
    """Bursts of three tenants."""
    rng, time, rows = random.Random(seed), 0.0, []
    for _ in range(30):
        time += rng.choice([0.0, 0.0, 1.0, 5.0])
        n = rng.randint(1, 8)
        rows.append(Arrival(time, rng.randint(1, 6), n, n, rng.choice("aab"), priority=rng.randint(0, 2)))
    return rows


POLICIES = list(collect("policies").values())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6), slots=st.integers(1, 4), blocks=st.sampled_from([16, 40, 4096]))
def test_around_every_policy_all_requests_end_and_jumps_equal_single_steps(run, data, seed, slots, blocks):
    choice = data.draw(st.sampled_from(POLICIES))
    modifiers = data.draw(st.lists(st.sampled_from([Aging(2.0), BypassCap(2), PinPreempted(), TenantCap(2)]), max_size=3))
    runs = [
        run(draw(seed), around(fresh(choice), *modifiers), slots=slots, blocks=blocks, preemption=LowestRank(), jump=jump)
        for jump in (False, True)
    ]
    assert runs[0].times == runs[1].times
    assert all(len(times) == req.max_tokens for req in runs[0].states for times in [runs[0].times[req.id]])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cap=st.integers(1, 4), choice=st.sampled_from([SJF(), Priority(), VTC()]))
def test_nobody_sees_more_later_starts_than_the_cap(run, seed, cap, choice):
    recorder = run(draw(seed), around(choice, BypassCap(cap)), slots=2)
    starts = {req.seq: req.started for req in recorder.states}
    order = sorted(starts, key=lambda seq: (starts[seq], seq))
    for place, seq in enumerate(order):
        later = [other for other in order[:place] if other > seq and starts[other] < starts[seq]]
        assert len(later) <= cap


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cap=st.integers(1, 3), choice=st.sampled_from([FCFS(), SJF(), VTC()]))
def test_no_tenant_runs_more_than_its_cap(run, seed, cap, choice):
    def watch(plan, result):
        tenants = [req.tenant for req in plan.seated]
        assert all(tenants.count(tenant) <= cap for tenant in tenants)

    run(draw(seed), around(choice, TenantCap(cap)), slots=4, watch=watch)


def test_jumps_end_when_a_hidden_request_would_have_misled_the_policy(run):
    """The oldest of the whole queue is due, but its tenant is capped: among those who are seen another comes due later."""
    rows = [(0, 2, 26, "x"), (0, 2, 26, "x"), (3, 2, 20, "z"), (3, 27, 2, "y")]
    arrivals = [Arrival(float(time), prompt, n, n, tenant) for time, prompt, n, tenant in rows]
    single, jumped = (
        run(arrivals, around(SJF(), Aging(4.0), TenantCap(1)), slots=4, blocks=29, jump=jump).times for jump in (False, True)
    )
    assert single == jumped


def test_a_restart_passes_nobody_a_second_time():
    cap = BypassCap(3).around(FCFS())
    waiting = Waiting(cap)
    states = [RequestState.of(Request(i, 0.0, 1, 1), i, 1, 0.0) for i in range(3)]
    waiting.add(states[0])
    for req in states[1:]:
        cap.started(req, 0)
    states[1].preemptions = 1
    cap.preempted(states[1], 1)
    cap.started(states[1], 0)
    assert not cap.overdue(states[0], None)


def test_a_modifier_costs_what_it_overrides_and_no_more():
    assert not overrides(around(FCFS(), Modifier()), Policy, "order", "served", "on_misfit", "order_running")
    assert overrides(around(VTC(), Modifier()), Policy, "served")
    assert not overrides(around(FCFS(), TenantCap()), Policy, "served", "on_misfit")
    assert overrides(around(FCFS(), Modifier(), TenantCap(), Modifier()), Policy, "order")


def test_a_modifier_around_nothing_says_so():
    with pytest.raises(UserError, match=r"^Aging wraps nothing: it is a modifier, to be chosen beside a policy"):
        Aging().lane(RequestState.of(Request(0, 0.0, 1, 1), 0, 1, 0.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Aging(after=-1.0), "after=-1.0: must be at least 0 and at most 1e+09"),
        (lambda: BypassCap(cap=0), "cap=0: must be at least 1 and at most 10000000"),
        (lambda: TenantCap(max_running=0), "max_running=0: must be at least 1 and at most 1000000"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message
