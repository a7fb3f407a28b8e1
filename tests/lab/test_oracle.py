"""The bounds beside a curve: clairvoyant SRPT for the latency, the costs' roofline for the throughput."""

from __future__ import annotations

import json

import pytest

BOUNDS = {"bound_e2e_mean", "bound_output_throughput"}
QUICK = ("engine=simulated", "workload.requests=100", "load.rates=[50,400]")


def curve(said) -> list[dict[str, float]]:
    assert said.code == 0, said.err
    return json.loads((said.folder / "curve.json").read_text())


@pytest.mark.parametrize("jump", ["true", "false"])
def test_srpt_pauses_the_long_for_the_short(slotlab, jump):
    one = ("batching.max_num_seqs=1", "engine=simulated", "engine.cost=unit", f"engine.jump={jump}")
    (row,) = curve(slotlab("workload=explicit", "workload.lengths=[10,2]", "workload.arrivals=[0,1]", *one))
    assert row["e2e_mean"] == (10 + 11) / 2
    assert row["bound_e2e_mean"] == (12 + 2) / 2, "10 stops at time 1 and goes on at time 3"
    assert row["bound_output_throughput"] == 1.0


def test_on_one_slot_no_policy_beats_the_latency_bound(slotlab):
    words = ("workload.prompt.high=1", "engine.per_context=0", "batching.max_num_seqs=1", "load.rates=[4,8]", *QUICK[:2])
    bound = [row["bound_e2e_mean"] for row in curve(slotlab(*words))]
    for policy in (["policy=fcfs"], ["policy=sjf", "predictor=oracle"]):
        rows = curve(slotlab(*words, *policy))
        assert [row["bound_e2e_mean"] for row in rows] == bound, "the bound is the workload's, not the policy's"
        assert all(row["e2e_mean"] >= low - 1e-9 for row, low in zip(rows, bound, strict=True))


@pytest.mark.parametrize("words", [(), ("batching=static",), ("engine.num_blocks=64",), ("load=concurrencies",)])
def test_no_run_is_faster_than_the_roofline(slotlab, words):
    options = QUICK[:2] if "load=concurrencies" in words else QUICK
    for row in curve(slotlab(*options, *words)):
        assert 0 < row["output_throughput"] <= row["bound_output_throughput"]


def test_bounds_are_left_out_where_they_would_not_compare(slotlab):
    assert all(row.keys() >= BOUNDS for row in curve(slotlab(*QUICK)))
    for words in (["record.oracle=false"], ["load.max_seconds=0.2"], ["engine.num_blocks=20"]):
        assert not any(row.keys() & BOUNDS for row in curve(slotlab(*QUICK, *words))), words


def test_a_real_engine_has_its_hardware_figures_instead(slotlab):
    (row,) = curve(slotlab("workload.requests=4", "load.rates=[50]", "workload.output.high=4"))
    assert not row.keys() & BOUNDS
    assert 0 < row["forward_share"] <= 1 and row["mfu"] > 0 and row["mbu"] > 0 and row["arithmetic_intensity"] > 0
