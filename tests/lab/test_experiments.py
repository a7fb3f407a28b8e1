"""The named sweeps, as they stand in MLflow afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

TABLE = {  # experiment -> case -> metrics, exact
    "static_vs_continuous": {
        "static": {"slot_utilisation": 0.60, "e2e_mean": 8.5, "makespan": 15},
        "continuous": {"slot_utilisation": 0.75, "e2e_mean": 6.5, "makespan": 12},
    },
    "join_mid_flight": {
        "static": {"e2e_mean": 6.75, "makespan": 15},
        "continuous": {"e2e_mean": 4.75, "makespan": 12},
    },
    "pad_waste": {
        "static": {"batch_efficiency": 0.38, "slot_utilisation": 0.38},
        "continuous": {"batch_efficiency": 1.0, "slot_utilisation": 0.38},
    },
}


@pytest.mark.parametrize("experiment", TABLE)
def test_the_seed_figures_are_exact_and_each_case_is_one_run_in_mlflow(slotlab, tmp_path, experiment):
    said = slotlab(f"experiment={experiment}", tracking="mlflow")
    assert said.code == 0, said.err
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    assert {run.info.run_name for run in runs} == set(TABLE[experiment])
    for run in runs:
        assert run.info.status == "FINISHED" and run.data.tags["time_unit"] == "step"
        assert {"slot_utilisation", "batch_efficiency", "e2e_mean", "makespan"} <= set(run.data.metrics)
        for name, value in TABLE[experiment][run.info.run_name].items():
            assert run.data.metrics[name] == value, (run.info.run_name, name)
    assert (said.folder / "slots.png").stat().st_size > 10_000


def test_policy_curves_measures_one_capacity_and_ends_with_verdicts(slotlab):
    said = slotlab("experiment=policy_curves", "engine=simulated", "workload.requests=200")
    assert said.code == 0, said.err
    jobs = json.loads((said.folder / "sweep.json").read_text())["jobs"]
    assert [job["name"] for job in jobs] == ["fcfs", "sjf_oracle", "priority", "vtc"]
    (capacity,) = json.loads((said.folder / "capacity.json").read_text()).values()
    for job in jobs:
        curve = json.loads((said.folder / job["folder"] / "curve.json").read_text())
        assert [round(row["rate"] / capacity, 6) for row in curve] == [0.5, 0.75, 1.0, 1.25, 1.5]
        assert curve[-1]["tenant_light_ttft_mean"] > 0
    verdicts = said.out.splitlines()[-7:-1]
    for name, pair in zip(("sjf_oracle", "priority", "vtc"), (verdicts[:2], verdicts[2:4], verdicts[4:]), strict=True):
        assert pair[0].startswith(f"{name} against fcfs: ") and pair[1].startswith(f"{name} against fcfs, tenant light: ")
    assert "won on mean TTFT" in verdicts[0] and "won on mean TTFT" in verdicts[3] and "tenant light: TTFT" in said.out


def test_batch_size_trades_the_speed_of_a_stream_for_that_of_all(slotlab):
    said = slotlab("experiment=batch_size", "engine=simulated")
    assert said.code == 0, said.err
    rows = [json.loads((said.folder / str(job) / "curve.json").read_text())[0] for job in range(6)]
    throughput, tpot = ([row[name] for row in rows] for name in ("output_throughput", "tpot_mean"))
    assert throughput == sorted(throughput) and tpot == sorted(tpot)


def test_the_environment_names_the_experiment_and_the_store(slotlab, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    said = slotlab("engine=simulated", "load.rates=[100]", tracking="mlflow")
    assert said.code == 0, said.err
    client = MlflowClient(f"sqlite:///{Path(tmp_path, 'other.db')}")
    (run,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.data.tags["choice.policy"] == "fcfs" and run.data.params["workload.requests"] == "64"
    assert run.data.params["policy"] == "fcfs", "a choice without options was written over by its empty options"
    assert run.inputs.dataset_inputs[0].dataset.name == "poisson"
