"""MLFQ: who sinks, who is paused, and who is lifted again (FastServe, and what its source gets wrong). One slot."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Request, UserError
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.mlfq import MLFQ
from slotlab_plugins.preemption.victims import LowestRank


@dataclass
class Plain(MLFQ):
    """Everybody joins the top."""

    def join(self, req):
        return 0


# columns: arrival, prompt tokens, output tokens; below A to D
LONG_FIRST = [(0, 1, 8), (1, 1, 2), (3, 1, 1), (7, 1, 3)]
LONG_PROMPT = [(0, 12, 3), (0, 1, 3)]
NEVER = 1e9

TABLES = [
    (LONG_FIRST, FCFS(), [8, 10, 11, 14]),
    (LONG_FIRST, MLFQ(levels=1, starvation=NEVER), [8, 10, 11, 14]),
    # 0-2 A sinks to level 1; 2-4 B; 4-5 C; 5-7 A; 7-9 D sinks to level 1, where A is first; 9-11 A sinks to level 2 after
    # 2 + 4 tokens; 11-12 D; 12-14 A
    (LONG_FIRST, MLFQ(quantum=2, levels=4, starvation=NEVER), [14, 4, 5, 12]),
    (LONG_PROMPT, FCFS(), [3, 6]),
    # a prefill of 12 / 4 = 3 uses up level 0 (2): A joins level 1; 0-2 B sinks to level 1, where it runs, to 3; A
    (LONG_PROMPT, MLFQ(quantum=2, levels=4, prefill_speed=4, starvation=NEVER), [6, 3]),
    # 0-1 A sinks at once; 1-3 B sinks; both are in level 1, A first: 3-5 A; 5-6 B
    (LONG_PROMPT, Plain(quantum=2, levels=4, prefill_speed=4, starvation=NEVER), [5, 6]),
]


def finish(run, rows, policy, **options):
    recorder = run([Arrival(float(time), prompt, n, n) for time, prompt, n in rows], policy, **options)
    return [recorder.times[id][-1] for id in range(len(rows))]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("table", "policy", "expected"), TABLES)
def test_a_schedule_worked_out_by_hand(run, table, policy, expected, jump):
    assert finish(run, table, deepcopy(policy), jump=jump) == expected


@pytest.mark.parametrize("jump", [False, True])
def test_nobody_is_born_starved_and_those_who_starve_keep_their_order(run, jump):
    """FastServe takes requests that never ran as starved since time 0, and puts back a list of them in reverse.

    At 10 come three whose prefill of 20 / 4 puts them into level 2, and six for level 0. Four of these run before the three
    have waited for 4; then the three, the first first; then the other two.
    """
    rows = [(10, 20, 1)] * 3 + [(10, 1, 1)] * 6
    policy = MLFQ(quantum=2, prefill_speed=4, starvation=4.0)
    assert finish(run, rows, policy, jump=jump) == [15, 16, 17, 11, 12, 13, 14, 18, 19]


@pytest.mark.parametrize("jump", [False, True])
def test_a_paused_request_is_lifted_after_it_has_not_run_for_so_long(run, jump):
    """It sinks at 2 and is paused for a stream of short ones; at 2 + 5 it gets a quantum of 2, and so on."""
    rows = [(0, 1, 6), *((time, 1, 1) for time in range(2, 30))]
    policy = MLFQ(quantum=2, levels=4, starvation=5.0)
    recorder = run([Arrival(float(time), prompt, n, n) for time, prompt, n in rows], policy, jump=jump)
    assert recorder.times[0] == [1, 2, 8, 9, 15, 16]
    assert recorder.states[0].preemptions == 0, "paused, with its KV"


def test_a_long_one_waits_for_ever_below_a_stream_of_short_ones_if_nobody_is_lifted(run):
    rows = [(0, 1, 6), *((time, 1, 1) for time in range(2, 30))]
    assert finish(run, rows, MLFQ(quantum=2, levels=4, starvation=NEVER))[0] == 30 + 4


def test_a_better_level_takes_kv_from_a_lower_one(run):
    """A holds 3 of 20 blocks when it has sunk; B needs 19 at time 2, and A starts again at 3 with what it had and one more."""
    rows = [(0, 1, 8), (2, 19, 1)]
    recorder = run([Arrival(float(t), p, n, n) for t, p, n in rows], MLFQ(quantum=2, starvation=NEVER), slots=2, blocks=20)
    assert [recorder.times[id][-1] for id in range(2)] == [9, 3]
    assert [req.preemptions for req in recorder.states] == [1, 0]


@dataclass
class Nosy(MLFQ):
    """Looks at both orders twice before it answers."""

    def order(self, waiting, view):
        assert [*super().order(waiting, view)] == [*super().order(waiting, view)]
        assert len([*super().order(waiting, view)]) == len(waiting)
        return super().order(waiting, view)

    def order_running(self, running, view):
        assert [*super().order_running(running, view)] == [*super().order_running(running, view)]
        return super().order_running(running, view)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    slots=st.integers(1, 5),
    blocks=st.sampled_from([40, 80, 4096]),
    starvation=st.sampled_from([1e-9, 2.0, 7.5, 40.0]),
)
def test_jumps_and_looks_at_the_orders_change_nothing(run, seed, slots, blocks, starvation):
    rng, time, arrivals = random.Random(seed), 0.0, []
    for _ in range(40):
        time += rng.choice([0.0, 0.0, 3.0, 20.0])
        prompt, output = rng.choice([1, 5, 25]), rng.choice([1, 6, 15])
        arrivals.append(Arrival(time, prompt, output, output))
    chosen = {"quantum": rng.randint(1, 5), "levels": 4, "prefill_speed": 2, "starvation": starvation}
    plain, nosy = MLFQ(**chosen), Nosy(**chosen)
    options = {"slots": slots, "blocks": blocks, "preemption": LowestRank()}
    single = run(arrivals, deepcopy(plain), jump=False, **options)
    assert run(arrivals, plain, **options).times == single.times
    assert run(arrivals, nosy, jump=False, **options).times == single.times
    assert not (plain._level or plain._sinks or plain._idle)


def test_nobody_is_asked_again_while_everybody_has_a_slot(run):
    rows = [(0, 1, 200), (0, 1, 300), (0, 1, 400)]
    recorder = run([Arrival(float(t), p, n, n) for t, p, n in rows], MLFQ(quantum=2), slots=4)
    assert len(recorder.steps) <= 6, "one jump to each end"


def test_nothing_is_kept_of_requests_that_were_aborted():
    policy = MLFQ()
    scheduler = Scheduler(BlockPool(64, 1), policy)
    states = [scheduler.submit(Request(id, 0.0, 5, 5), 0.0) for id in range(1000)]
    for state in states:
        scheduler.abort(state)
    assert not (policy._level or policy._sinks or policy._idle)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantum": 0}, "quantum=0: must be at least 1 and at most 1000000000"),
        ({"levels": 0}, "levels=0: must be from 1 to 32"),
        ({"prefill_speed": 0}, "prefill_speed=0: must be at least 1 and at most 1000000000"),
        ({"starvation": 0.0}, "starvation=0.0: must be greater than 0 and at most 1e+09"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(options, message):
    with pytest.raises(UserError) as error:
        MLFQ(**options)
    assert str(error.value) == message
