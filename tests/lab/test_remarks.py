"""What changes the meaning of a result is in the result: in meta.json, in MLflow, in the name, in tables and comparisons."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from mlflow import MlflowClient

from slotlab.errors import PluginError
from slotlab.lab.remarks import add, full_name
from slotlab_plugins.engines.simulated import Simulated

FEW = ("engine=simulated", "engine.cost=unit", "workload=explicit", "workload.lengths=[5,3,4]", "load=native")
EQUAL = "all keys are equal: the policy acts as fcfs"
LACKING = "without engine.prefix_cache the policy acts as fcfs"


def meta_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "meta.json").read_text())


def test_a_sweep_shows_which_runs_are_not_what_their_names_say(slotlab):
    said = slotlab("-m", "policy=fcfs,sjf,lpm,sjf_oracle", *FEW, "batching.max_num_seqs=1")
    assert said.code == 0, said.err
    metas = [meta_of(said.folder / str(job)) for job in range(4)]
    names = ["fcfs", "sjf (acts as fcfs)", "lpm (acts as fcfs)", "sjf_oracle"]
    assert [meta["name"] for meta in metas] == names
    oracle = {"oracle": "the predictor is told the true lengths of the answers"}
    assert [meta["remarks"] for meta in metas] == [{}, {"acts_as_fcfs": EQUAL}, {"acts_as_fcfs": LACKING}, oracle]
    table = pd.read_csv(said.folder / "table.csv", keep_default_na=False)
    assert list(table["run"]) == names and list(table["remarks"]) == ["", "acts as fcfs", "acts as fcfs", "oracle"]
    told = slotlab("compare", str(said.folder)).out
    for job, sentence in ((1, EQUAL), (2, LACKING), (3, oracle["oracle"])):
        assert f"{names[job]} against fcfs: of {said.folder / str(job)} alone: {sentence}" in told


def test_mlflow_learns_what_was_known_and_what_turned_out(slotlab, tmp_path):
    said = slotlab(*FEW, "policy=sjf", "predictor=oracle", "load.max_seconds=1", tracking="mlflow")
    assert said.code == 0, said.err
    meta = meta_of(said.folder)
    run = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(meta["mlflow_run"])
    sent = {key.removeprefix("remark."): tag for key, tag in run.data.tags.items() if key.startswith("remark.")}
    assert sent == meta["remarks"] and {"oracle", "ended_early"} <= {*sent}
    assert sent["ended_early"] == "point 0 ended at load.max_seconds=1.0"
    assert run.info.run_name == meta["name"]


def test_a_name_tells_only_what_holds_at_every_load_point():
    fcfs, sjf = SimpleNamespace(remarks={"acts_as_fcfs": EQUAL}), SimpleNamespace(remarks={})
    assert full_name("sjf", fcfs.remarks, [fcfs, fcfs]) == "sjf (acts as fcfs)"
    assert full_name("sjf", fcfs.remarks, [fcfs, sjf]) == "sjf"
    assert full_name("lpm", {"acts_as_fcfs": LACKING}, []) == "lpm (acts as fcfs)"


def test_each_load_point_is_told_once():
    remarks: dict[str, str] = {}
    for sentence in ("2 requests rejected", "1 requests rejected", "2 requests rejected"):
        add(remarks, "rejected", sentence)
    assert remarks == {"rejected": "2 requests rejected; 1 requests rejected"}


def test_a_run_that_fails_on_its_way_says_how_far_it_came(slotlab, monkeypatch):
    whole = [Simulated.begin]

    def begin(self, arrivals, streams):
        if not whole:
            raise PluginError(self, None, "out of order")
        whole.pop()(self, arrivals, streams)

    monkeypatch.setattr(Simulated, "begin", begin)
    said = slotlab(*FEW[:-1], "load=concurrencies", "load.concurrencies=[1,2]", "record.oracle=false")
    assert said.code == 1
    assert meta_of(said.folder)["remarks"] == {"ended_early": "ended after 1 of 2 load points"}


def test_a_lossy_rerun_is_called_so(slotlab):
    first = slotlab(*FEW)
    (first.folder / "arrivals.parquet").unlink()
    meta = meta_of(slotlab("rerun", str(first.folder), "--lossy").folder)
    assert meta["name"] == "fcfs (lossy)" and meta["remarks"]["lossy"].startswith("served without words, shared prefixes")
