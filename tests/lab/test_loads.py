"""Loads at work: the knee of servers whose capacity is known, and what the jobs of a sweep agree on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from slotlab import Arrival, Streams, Workload
from slotlab.lab.bench import Bench
from slotlab.lab.config import Lab, build
from slotlab.lab.saturation import concatenate, saturation
from slotlab.tracking import NoTracker
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.loads.chosen import Auto
from slotlab_plugins.models.llama import Tiny
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.predictors.basic import NoPredictor
from slotlab_plugins.preemption.victims import LowestRank

MEAN = 10  # steps of service


@dataclass
class Single(Workload):
    """Poisson arrivals; services of `MEAN` steps, exponential or all equal."""

    exponential: bool = False
    requests: int = 500

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        times = np.cumsum(streams("arrivals").exponential(size=self.requests))
        services = streams("services").exponential(MEAN, self.requests) if self.exponential else np.full(self.requests, MEAN)
        for time, service in zip(times, services, strict=True):
            steps = max(1, round(service))
            yield Arrival(float(time), 1, 20 * MEAN, min(steps, 20 * MEAN))


def server(folder: Path, workload: Workload, **auto: float) -> Bench:
    """One slot, and steps of ten milliseconds: the capacity is 100 / MEAN = 10 requests per second."""
    engine = Simulated(per_step=1e-2, per_token=0.0, per_context=0.0, num_blocks=1024)
    parts = {"policy": FCFS(), "admission": Prompt(), "preemption": LowestRank(), "predictor": NoPredictor()}
    lab = Lab(workload=workload, load=Auto(**auto), model=Tiny(), engine=engine, batching=Continuous(1, 512), **parts)
    cfg = OmegaConf.structured(lab)
    return Bench(cfg, build(cfg), folder, "none")


@pytest.mark.parametrize("exponential", [False, True], ids=["M/D/1", "M/M/1"])
def test_the_knee_of_a_single_server_is_its_capacity_within_two_percent(tmp_path, exponential):
    bench = server(tmp_path, Single(exponential), accuracy=0.02, max_requests=50_000)
    rates = [point.rate for point in bench.lab.load.points(bench)]
    assert rates[len(rates) // 2] == pytest.approx(10.0, rel=0.02)
    (found,) = json.loads((tmp_path / "knee.json").read_text()).values()
    assert found["rate"] == rates[len(rates) // 2] and found["half_width"] <= 0.02


def test_a_knee_that_stays_uncertain_is_said_to_be(tmp_path, capsys):
    server(tmp_path, Single(exponential=True), accuracy=0.001).knee(0.001, 1000)
    assert "after 1000 requests the knee is known to" in capsys.readouterr().out


def test_refused_requests_count_as_offered():
    ends = [float(i) for i in range(100)]
    assert saturation(ends, 100).rate == pytest.approx(1.0)
    assert saturation(ends, 200).rate == pytest.approx(2.0)
    assert saturation([5.0], 1).rate == pytest.approx(0.2)


def test_draws_are_joined_with_their_sessions():
    draw = [Arrival(0.0, 1, 1, 1), Arrival(1.0, 1, 1, 1, follows=0)]
    assert [arrival.follows for arrival in concatenate([draw, draw])] == [None, 0, None, 2]


QUICK = ("engine=simulated", "workload.requests=40")


def curves(folder: Path) -> list[list[dict[str, float]]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/curve.json"))]


def test_the_jobs_of_a_sweep_share_what_auto_found(slotlab):
    said = slotlab("-m", "policy=fcfs,sjf", "load=auto", "load.num_points=3", "load.accuracy=0.2", *QUICK)
    assert said.code == 0, said.err
    one, other = curves(said.folder)
    assert [row["rate"] for row in one] == [row["rate"] for row in other]
    assert len(json.loads((said.folder / "knee.json").read_text())) == 1
    assert "not compared" not in said.out


def test_the_jobs_of_a_sweep_repeat_each_point_equally_often(slotlab):
    options = ("load=until_ci", "load.rates=[50,200]", "load.width=0.15", "load.max_repeats=8")
    said = slotlab("-m", "policy=fcfs,sjf", *options, *QUICK)
    assert said.code == 0, said.err
    counts = [[row["repeats"] for row in curve] for curve in curves(said.folder)]
    assert counts[0] == counts[1] == list(json.loads((said.folder / "repeats.json").read_text()).values())
    assert all(3 <= count <= 8 for count in counts[0]) and counts[0] != [3, 3]
    assert "not compared" not in said.out


def test_a_point_that_reaches_max_seconds_is_cut_and_marked(slotlab):
    said = slotlab("load.rates=[20,200]", "load.max_seconds=0.5", *QUICK)
    assert said.code == 0, said.err
    requests = pd.read_parquet(said.folder / "requests.parquet")
    slow, fast = (requests[requests["point"] == point] for point in (0, 1))
    assert len(slow) < 40 == len(fast), "who would have come later was never offered"
    assert (slow["scheduled_arrival"] <= 0.5).all() and set(fast["status"]) == {"finished", "aborted"}
    assert all(times.max(initial=0.0) < 0.6 for times in requests["token_times"])
    assert [row.get("ended_early") for row in curves(said.folder.parent)[-1]] == [True, True]
    assert "ended early" in said.out


def test_without_a_limit_nothing_is_marked(slotlab):
    said = slotlab("load.rates=[200]", "load.max_seconds=100", *QUICK)
    (row,) = json.loads((said.folder / "curve.json").read_text())
    assert "ended_early" not in row and row["aborted"] == 0


def test_the_cut_falls_where_single_steps_would_put_it(slotlab):
    words = ("load.rates=[200]", "load.max_seconds=0.3", *QUICK)
    jumped, single = slotlab(*words).folder, slotlab(*words, "engine.jump=false").folder
    for name in ("requests.parquet", "steps.parquet"):
        assert (jumped / name).read_bytes() == (single / name).read_bytes(), name


def test_ref_rate_chooses_the_point_whose_tail_stands_for_the_curve(slotlab):
    said = slotlab("load.rates=[20,100,200]", "load.ref_rate=190", *QUICK)
    meta = json.loads((said.folder / "meta.json").read_text())
    curve = json.loads((said.folder / "curve.json").read_text())
    assert (meta["ref_point"], meta["cache"]) == (2, "reset")
    assert meta["scalars"]["ttft_p99_at_ref_rate"] == curve[2]["ttft_p99"]
    refused = slotlab("load=concurrencies", "load.ref_rate=5", *QUICK)
    assert refused.code == 2 and "load.ref_rate=5.0: must be null, for this load has no rates" in refused.err


def test_the_share_of_steps_that_each_bound_held_adds_up_to_one(slotlab):
    said = slotlab("load.rates=[50,400]", "batching.max_num_seqs=4", *QUICK)
    calm, busy = json.loads((said.folder / "curve.json").read_text())
    for row in (calm, busy):
        assert sum(value for key, value in row.items() if key.startswith("bound_") and key.endswith("_share")) == pytest.approx(1)
    assert busy["bound_slots_share"] > calm["bound_slots_share"] > 0


def test_a_point_cut_before_its_first_arrival_is_empty_and_marked(slotlab):
    said = slotlab("load.rates=[0.001,50]", "load.max_seconds=1", *QUICK)
    empty, full = json.loads((said.folder / "curve.json").read_text())
    assert empty["offered"] == 0 and empty["ended_early"] and "output_throughput" not in empty
    assert full["offered"] > 0


def test_a_real_engine_keeps_to_max_seconds(slotlab):
    said = slotlab("load.rates=[1000]", "load.max_seconds=0.02", "workload.requests=200")
    (row,) = json.loads((said.folder / "curve.json").read_text())
    assert row["ended_early"] and row["aborted"] > 0 and row["finished"] + row["aborted"] == row["offered"]


def test_a_capacity_that_cannot_be_measured_gets_one_line(slotlab):
    said = slotlab("load=auto", "engine.num_blocks=1", *QUICK)
    assert said.code == 2 and "every request of the workload was rejected" in said.err


def test_the_tracker_gets_the_series_of_the_first_repeat(slotlab, monkeypatch):
    seen = {}
    tracker = NoTracker()
    tracker.series = lambda index, columns: seen.update({index: columns})
    monkeypatch.setattr("slotlab.lab.tracked.open_tracker", lambda *_: tracker)
    said = slotlab("load.rates=[20,50]", "load.repeats=2", "batching.max_num_seqs=2", *QUICK)
    table = pd.read_parquet(said.folder / "series.parquet")
    assert seen.keys() == {0, 1} and set(table["repeat"]) == {0, 1}
    mine = table[(table["point"] == 1) & (table["repeat"] == 0) & (table["name"] == "queue_depth")]
    assert seen[1]["queue_depth"] == dict(zip(mine["second"].astype(int), mine["value"], strict=True))
    assert seen[1].keys() == {"queue_depth", "running", "kv_used", "step_tokens", "service_default"}
