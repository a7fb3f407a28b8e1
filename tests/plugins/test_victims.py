"""Whom the built-in preemptions choose."""

from __future__ import annotations

import pytest

from slotlab import Arrival, Mode, Need, Request
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.predictors.basic import Oracle
from slotlab_plugins.preemption.victims import LowestRank, Newest


@pytest.mark.parametrize(
    ("plugin", "policy", "order"),
    [
        (Newest(), SJF(), [0, 2, 1]),  # it started last, for it is the longest
        (LowestRank(), FCFS(), [2, 1, 0]),
        (LowestRank(), SJF(), [0, 2, 1]),
        (LowestRank(), Priority(), [2, 0, 1]),  # of two equals the later arrival
    ],
)
def test_the_order_of_victims(plugin, policy, order):
    scheduler = Scheduler(BlockPool(64, 1), policy, predictor=Oracle())
    for id, (length, priority) in enumerate([(9, 1), (2, 0), (5, 1)]):
        scheduler.submit(Request(id, float(id), 1, 9, priority=priority), 2.0, length)
    scheduler.plan(2.0)
    running = list(scheduler.view.running)
    victims = list(plugin.victims(Need(1), running[0], running, scheduler.view))
    assert [req.id for req, _ in victims] == order
    assert {mode for _, mode in victims} == {Mode.RECOMPUTE}


@pytest.mark.parametrize(("plugin", "spared"), [(LowestRank(), True), (Newest(), False)])
def test_lowest_rank_spares_the_urgent_one_that_came_last(run, plugin, spared):
    arrivals = [Arrival(0.0, 3, 6, 6, priority=1), Arrival(1.0, 3, 6, 6, priority=0)]
    recorder = run(arrivals, Priority(), slots=2, blocks=9, preemption=plugin)
    assert [req.preemptions for req in recorder.states] == ([1, 0] if spared else [0, 1])
