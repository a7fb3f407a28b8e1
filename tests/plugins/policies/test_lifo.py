"""LIFO: the last arrival first. One slot, steps of one time unit, one token per step."""

from __future__ import annotations

import pytest

from slotlab import Arrival
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.lifo import LIFO
from slotlab_plugins.policies.random import Random
from slotlab_plugins.preemption.victims import LowestRank

ROWS = [(0, 2), (0, 2), (1, 1), (3, 2), (3, 1)]  # arrival, output tokens

# at 0 of (0, 1) the later, 1; at 2 of (0, 2) 2; at 3 of (0, 3, 4) 4, then 3; the first of all is the last
LAST_FIRST = [8, 2, 3, 6, 4]


def finish(run, policy, **options):
    recorder = run([Arrival(float(time), 1, n, n) for time, n in ROWS], policy, **options)
    return [recorder.times[id][-1] for id in range(len(ROWS))]


@pytest.mark.parametrize("jump", [False, True])
def test_the_last_arrival_goes_first(run, jump):
    assert finish(run, LIFO(), jump=jump) == LAST_FIRST


@pytest.mark.parametrize(("policy", "expected"), [(FCFS(), [2, 4, 5, 7, 8]), (Random(), [2, 8, 3, 5, 6])])
def test_its_siblings_go_another_way(run, policy, expected):
    assert finish(run, policy) == expected != LAST_FIRST


def test_when_the_cache_runs_out_the_first_arrival_gives_way(run):
    """Whoever came last is also the last to be evicted: 3 + 6 - 1 blocks each, and there are 9."""
    recorder = run([Arrival(0.0, 3, 6, 6)] * 2, LIFO(), slots=2, blocks=9, preemption=LowestRank())
    assert [req.preemptions for req in recorder.states] == [1, 0]
