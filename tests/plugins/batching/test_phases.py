"""Whole prompts and chunks, prefills and decodes: who gets the tokens of a step. Steps of one time unit."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from slotlab import Arrival, Policy, Status
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.orca import Orca
from slotlab_plugins.batching.prefill_first import PrefillFirst
from slotlab_plugins.batching.sarathi import Sarathi
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.predictors.basic import Oracle

# arrival, prompt, output; steps of at most 8 tokens
WORK = [(0, 5, 3), (0, 5, 2), (0, 2, 2), (1, 8, 2)]

TABLES = [
    # A5 B3 | A1 B2 C2 D3 | A1 B1 C1 D5 | D1
    (Continuous, [1, 2, 2, 3], [3, 3, 3, 4]),
    (Sarathi, [1, 2, 2, 3], [3, 3, 3, 4]),
    # B does not fit beside A, nor D beside anybody: A5 | A1 B5 C2 | A1 B1 C1 | D8 | D1
    (Orca, [1, 2, 2, 4], [3, 3, 3, 5]),
    # the decodes wait: A5 | B5 C2 | D8 | A1 B1 C1 D1 | A1
    (PrefillFirst, [1, 2, 2, 3], [5, 4, 4, 4]),
]


def arrive(rows) -> list[Arrival]:
    return [Arrival(float(time), prompt, output, output) for time, prompt, output in rows]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("batching", "first", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, batching, first, finish, jump):
    recorder = run(arrive(WORK), FCFS(), batching=batching(4, 8), jump=jump)
    assert [recorder.times[id][0] for id in range(4)] == first
    assert [recorder.times[id][-1] for id in range(4)] == finish


class UrgentFirst(Policy):
    """Running requests in the order of their priority."""

    def order_running(self, running, view):
        return sorted(running, key=lambda req: req.priority)


@pytest.mark.parametrize(
    ("batching", "times"),
    [
        # A1 | A1 B3 | B4 | B1 A1 | A1: an urgent prompt takes the whole third step
        (Continuous, [1, 2, 4, 5]),
        # A1 | A1 B3 | A1 B3 | A1 B2
        (Sarathi, [1, 2, 3, 4]),
    ],
)
def test_sarathi_differs_from_continuous_where_a_policy_puts_a_prefill_before_a_decode(run, batching, times):
    arrivals = [Arrival(0.0, 1, 4, 4, priority=1), Arrival(1.0, 8, 1, 1, priority=0)]
    assert list(run(arrivals, UrgentFirst(), batching=batching(2, 4)).times[0]) == times


def draw(seed: int, longest: int = 12) -> list[Arrival]:
    rng = random.Random(seed)
    shapes = [(float(rng.randint(0, 20)), rng.randint(1, longest), rng.randint(1, 8)) for _ in range(16)]
    return [Arrival(time, prompt, output, output) for time, prompt, output in sorted(shapes)]


@pytest.mark.parametrize("seed", range(8))
def test_sarathi_is_continuous_where_running_requests_keep_their_order(run, seed):
    one, other = (run(draw(seed), FCFS(), slots=4, blocks=24, batching=kind(4, 6)) for kind in (Continuous, Sarathi))
    assert one.times == other.times
    assert sum(req.preemptions for req in one.states) > 0


def gaps(run, batching, prefills: int) -> float:
    """The longest pause in an answer during which so many prompts of 8 tokens come, in steps of at most 9."""
    rows = [(0, 1, 20), *[(2, 8, 1)] * prefills]
    recorder = run(arrive(rows), FCFS(), batching=batching(16, 9))
    starts = [req.started for req in recorder.states]
    assert starts == sorted(starts), "a later prompt overtook an earlier one"
    return max(later - sooner for sooner, later in pairwise(recorder.times[0]))


@pytest.mark.parametrize("prefills", range(1, 9))
def test_the_pause_of_a_decode_grows_with_the_number_of_prefills_only_if_they_go_first(run, prefills):
    assert gaps(run, Sarathi, prefills) == 1
    assert gaps(run, PrefillFirst, prefills) == 1 + prefills


@pytest.mark.parametrize("jump", [False, True])
def test_more_decodes_than_tokens_leave_a_started_prefill_idle(run, jump):  # sarathi-serve takes a negative chunk
    batching, plans = Sarathi(7, 10), []

    def watch(plan, result) -> None:
        plans.extend([{req.id: n for req, n in plan.tokens.items()}] * len(result.durations))
        batching.max_num_batched_tokens = 4  # the six decodes and the prefill of the first step have started with more

    run(arrive([(0, 1, 3)] * 6 + [(0, 9, 1)]), FCFS(), batching=batching, watch=watch, jump=jump)
    assert plans == [
        {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 4},
        {0: 1, 1: 1, 2: 1, 3: 1},
        {0: 1, 1: 1, 2: 1, 3: 1},
        {4: 1, 5: 1, 6: 2},
        {4: 1, 5: 1, 6: 2},
        {6: 1},
    ]


@pytest.mark.parametrize(
    ("batching", "finish"),
    [
        # A2 B6 | A1 B7 | A1 B7 | A1 B1 C3
        (Orca, [4, 4, 4]),
        # A2 B6 | B8 | B6 | C3 | A1 B1 | A1 | A1
        (PrefillFirst, [7, 5, 4]),
    ],
)
def test_only_a_prompt_longer_than_a_whole_step_is_cut(run, batching, finish):
    recorder = run(arrive([(0, 2, 4), (0, 20, 2), (0, 3, 1)]), FCFS(), batching=batching(4, 8))
    assert [recorder.times[id][-1] for id in range(3)] == finish


@pytest.mark.parametrize("batching", [Orca, PrefillFirst])
@pytest.mark.parametrize("seed", range(6))
def test_whoever_starts_computes_all_it_knows_in_that_step(run, batching, seed):
    """Those who came to know more than a step can compute, by being preempted late, are cut; they too come to an end."""
    cut = []

    def watch(plan, result) -> None:
        going_on = [req for req in plan.tokens if req.status is Status.RUNNING]
        cut.extend(req.known for req in going_on if req.remaining > 1)

    recorder = run(draw(seed, longest=9), FCFS(), slots=4, blocks=20, batching=batching(4, 9), watch=watch)
    assert all(recorder.times[req.id] for req in recorder.states)
    assert all(known > 9 for known in cut)


def draw_mixed(seed: int) -> list[Arrival]:
    rng = random.Random(seed)
    rows = [(rng.uniform(0, 40), rng.randint(1, 12), rng.randint(1, 30)) for _ in range(20)]
    return [Arrival(time, prompt, output + 5, output) for time, prompt, output in sorted(rows)]


@pytest.mark.parametrize("batching", [Orca, PrefillFirst, Sarathi])
@pytest.mark.parametrize("seed", range(4))
def test_jumps_change_nothing(run, batching, seed):
    one, other = (
        run(draw_mixed(seed), FCFS(), slots=4, blocks=60, batching=batching(4, 8), predictor=Oracle(), jump=jump)
        for jump in (False, True)
    )
    assert one.times == other.times
