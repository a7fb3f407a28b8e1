"""Schedules of a few requests, worked out by hand: one slot, steps of one time unit, one token per step.

A request of length n that starts at t and keeps its slot ends at t + n.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotlab import Arrival
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC

# columns: arrival, output tokens, priority, tenant
SHORT_AND_LONG = [(0, 5, 0, "a"), (0, 3, 0, "a"), (0, 1, 0, "a"), (0, 4, 0, "a"), (0, 2, 0, "a")]
STREAM_OF_SHORT = [(0, 3, 0, "a"), (0, 8, 0, "a"), (1, 2, 0, "a"), (2, 2, 0, "a"), (4, 2, 0, "a"), (6, 2, 0, "a")]
CLASSES = [(0, 3, 2, "a"), (0, 2, 1, "a"), (0, 2, 0, "a"), (0, 1, 1, "a")]
URGENT_LATER = [(0, 4, 2, "a"), (1, 2, 1, "a"), (2, 2, 0, "a"), (3, 1, 0, "a")]
OLD_AND_URGENT = [(0, 4, 0, "a"), (0, 2, 3, "a"), (1, 2, 0, "a"), (4, 2, 0, "a"), (6, 2, 0, "a")]
FLOOD = [(0, 2, 0, "a"), (0, 2, 0, "a"), (0, 2, 0, "a"), (0, 2, 0, "a"), (0, 2, 0, "b"), (0, 2, 0, "b")]
LONG_AND_SHORT_TENANT = [(0, 6, 0, "a"), (0, 6, 0, "a"), (0, 1, 0, "b"), (0, 1, 0, "b"), (0, 1, 0, "b"), (0, 1, 0, "b")]

TABLES = [
    # in the order of arrival: 5, 8, 9, 13, 15
    (SHORT_AND_LONG, FCFS(), [5, 8, 9, 13, 15]),
    # 1 2 3 4 5 tokens in this order
    (SHORT_AND_LONG, SJF(), [15, 6, 1, 10, 3]),
    (STREAM_OF_SHORT, FCFS(), [3, 11, 13, 15, 17, 19]),
    # the one of 8 tokens goes last, for there is always a shorter one
    (STREAM_OF_SHORT, SJF(), [3, 19, 5, 7, 9, 11]),
    # keys: 3, 8, 2 + 2, 2 + 4, 2 + 8, 2 + 12: the one of 8 goes fourth
    (STREAM_OF_SHORT, SJF(aging=2.0), [3, 15, 5, 7, 17, 19]),
    # keys: 3, 8, 3, 4, 6, 8: of the two eights the earlier goes first
    (STREAM_OF_SHORT, SJF(aging=1.0), [3, 17, 5, 7, 9, 19]),
    (CLASSES, FCFS(), [3, 5, 7, 8]),
    (CLASSES, Priority(), [8, 4, 2, 5]),
    (URGENT_LATER, FCFS(), [4, 6, 8, 9]),
    # nobody is displaced: class 2 runs to its end, then 0 0 1
    (URGENT_LATER, Priority(), [4, 9, 6, 7]),
    # 1 displaces 2 at time 1, 0 displaces 1 at time 2; at 3 the other 0 is no better than the one that runs;
    # whoever comes back computes what it had and one new token in the same step, so no time is lost
    (URGENT_LATER, Priority(displace=True), [9, 6, 4, 5]),
    (OLD_AND_URGENT, FCFS(), [4, 6, 8, 10, 12]),
    # class 3 goes last
    (OLD_AND_URGENT, Priority(), [4, 12, 6, 8, 10]),
    # keys: 0, 3, 1, 4, 6
    (OLD_AND_URGENT, Priority(aging=1.0), [4, 8, 6, 10, 12]),
    (FLOOD, FCFS(), [2, 4, 6, 8, 10, 12]),
    # each request costs 1 + 2 * 2 = 5; counters (a, b) at the starts: (0, 0) a, (5, 0) b, (5, 5) a, (10, 5) b, a, a
    (FLOOD, VTC(), [2, 6, 10, 12, 4, 8]),
    (LONG_AND_SHORT_TENANT, FCFS(), [6, 12, 13, 14, 15, 16]),
    # a costs 1 + 2 * 6 = 13, b 1 + 2 = 3: after the first of a all four of b (0, 3, 6, 9 < 13), then the second of a
    (LONG_AND_SHORT_TENANT, VTC(), [6, 16, 7, 8, 9, 10]),
    # only what is put in is paid: b pays 1 as a does, so they take turns (the earlier request at equal counters)
    (LONG_AND_SHORT_TENANT, VTC(output_price=0), [6, 13, 7, 14, 15, 16]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("table", "policy", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, table: Any, policy: Any, finish: list[int], jump: bool):
    arrivals = [Arrival(float(time), 1, n, n, tenant, priority=priority) for time, n, priority, tenant in table]
    recorder = run(arrivals, replace(policy), jump=jump)
    assert [recorder.times[id][-1] for id in range(len(arrivals))] == finish
    assert sum(req.recomputed for req in recorder.states) == (2 if getattr(policy, "displace", False) else 0)


def test_every_policy_differs_from_fcfs_on_its_table():
    tables = {id(table): finish for table, policy, finish in TABLES if isinstance(policy, FCFS)}
    assert all(finish != tables[id(table)] for table, policy, finish in TABLES if not isinstance(policy, FCFS))
