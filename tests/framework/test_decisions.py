"""The decision log: why somebody got no token in a step."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from slotlab import Batching, Closed, Policy, Verdict
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous


class Skips(Policy):
    """Passes over whoever does not fit."""

    def on_misfit(self, req, why, view):
        return Verdict.SKIP


class Pauses(Policy):
    """Runs the newest first, and pauses the rest."""

    def order_running(self, running, view):
        return list(running)[-1:]


class Shut(Batching):
    """Lets nobody in once somebody runs."""

    def gate(self, view):
        return Closed() if view.running else super().gate(view)


def logged(bench, **options):
    desk = bench(log_decisions=True, **options)
    return desk, lambda plan: [(req.id, reason) for req, reason in plan.unserved]


def test_the_head_of_the_line_and_nobody_behind_it_is_listed(bench):
    desk, said = logged(bench, batching=Continuous(1, 64))
    for _ in range(3):
        desk.submit(1, 4)
    assert said(desk.step()) == [(1, "no free slot")]
    assert said(desk.step()) == [(1, "no free slot")], "also where nobody is asked"


@pytest.mark.parametrize(
    ("options", "prompts", "reason"),
    [
        ({"batching": Continuous(4, 4)}, (4, 4), "no token budget left"),
        ({"blocks": 6}, (4, 4), "not enough free KV blocks"),
        ({"batching": Shut(4, 64)}, (1, 1), "gate closed"),
    ],
)
def test_each_limit_has_its_reason(bench, options, prompts, reason):
    desk, said = logged(bench, **options)
    desk.submit(prompts[0], 2)
    if reason == "gate closed":
        desk.step()
    desk.submit(prompts[1], 2)
    assert said(desk.step()) == [(1, reason)]


def test_who_is_passed_over_is_told_from_who_stops_the_step(bench):
    desk, said = logged(bench, blocks=8, policy=Skips())
    for prompt in (4, 6, 3, 5):
        desk.submit(prompt, 2)
    plan = desk.step()
    assert [req.id for req in plan.tokens] == [0, 2]
    assert said(plan) == [(1, "passed over: not enough free KV blocks"), (3, "passed over: not enough free KV blocks")]


def test_paused_idle_and_evicted_requests_are_listed(bench):
    desk, said = logged(bench, policy=Pauses(), batching=Continuous(2, 64))
    for _ in range(4):
        desk.submit(1, 9)
    desk.step()
    assert said(desk.step()) == [(3, "no free slot"), (0, "paused by the policy")]
    assert said(desk.step()) == [(0, "paused by the policy"), (1, "paused by the policy")]
    desk, said = logged(bench, batching=Continuous(2, 1))
    desk.submit(1, 9)
    desk.step()
    desk.submit(1, 9)
    assert (1, "no token budget left") in said(desk.step())
    desk, said = logged(bench, blocks=4)
    desk.submit(1, 4)
    desk.submit(1, 4)
    reasons = [reason for _ in range(4) for _, reason in said(desk.step())]
    assert "evicted" in reasons


def test_nothing_is_collected_unless_it_is_asked_for(bench):
    desk = bench(batching=Continuous(1, 64))
    desk.submit(1, 4)
    desk.submit(1, 4)
    assert not desk.step().unserved and not Scheduler.__init__.__kwdefaults__["log_decisions"]


QUICK = ("engine=simulated", "workload.requests=20", "load.rates=[400]", "batching.max_num_seqs=2")


def test_the_log_is_written_where_it_is_wanted_and_the_same_with_jumps(slotlab):
    assert not (slotlab(*QUICK).folder / "decisions.parquet").exists()
    jumped, single = (slotlab(*QUICK, "record.decisions=true", *more).folder for more in ((), ("engine.jump=false",)))
    assert (jumped / "decisions.parquet").read_bytes() == (single / "decisions.parquet").read_bytes()
    log, steps = (pd.read_parquet(jumped / f"{name}.parquet") for name in ("decisions", "steps"))
    assert set(log["reason"]) == {"no free slot"}
    assert set(log["step"]) == set(steps[steps["bound"] == "slots"]["step"])
    assert json.loads((jumped / "meta.json").read_text())["status"] == "FINISHED"


def test_the_slot_chart_may_be_had_or_left(slotlab):
    assert (slotlab(*QUICK).folder / "slots.parquet").exists()
    assert not (slotlab(*QUICK, "record.slots=false").folder / "slots.parquet").exists()
    assert (slotlab(*QUICK, "record.slots=true").folder / "slots.parquet").exists()
    refused = slotlab(*QUICK, "record.slots=maybe")
    assert refused.code == 2 and "record.slots=maybe: must be auto, true or false" in refused.err
