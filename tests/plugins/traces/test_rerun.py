"""`slotlab rerun RUN`: what a run served, again."""

from __future__ import annotations

import json

import pandas as pd
import pytest

TENANTS = "workload.tenants=[{name:heavy,share:0.8,priority:1},{name:light,share:0.2,weight:3}]"
RUN = ("engine=simulated", "batching.max_num_seqs=2", "workload.requests=60", TENANTS, "load.rates=[40]")


def requests(folder) -> pd.DataFrame:
    return pd.read_parquet(folder / "requests.parquet")


@pytest.mark.parametrize("words", [("policy=vtc",), ("policy=sjf_oracle", "policy.aging=1"), ("engine.per_step=0.02", "seed=7")])
def test_a_run_runs_again_with_the_same_outcome_to_the_last_token(slotlab, words):
    first = slotlab(*RUN, *words)
    again = slotlab("rerun", str(first.folder))
    assert again.code == 0, again.err
    assert again.folder != first.folder
    pd.testing.assert_frame_equal(requests(first.folder), requests(again.folder))
    assert (first.folder / "steps.parquet").read_bytes() == (again.folder / "steps.parquet").read_bytes()


def test_another_policy_serves_the_same_requests(slotlab):
    first = slotlab(*RUN, "policy=vtc")
    again = slotlab("rerun", str(first.folder), "policy=priority")
    assert json.loads((again.folder / "meta.json").read_text())["choices"]["policy"] == "priority"
    expected = slotlab(*RUN, "policy=priority")
    pd.testing.assert_frame_equal(requests(expected.folder), requests(again.folder))


def test_a_rerun_can_be_rerun_and_keeps_its_weights(slotlab):
    first = slotlab(*RUN, "policy=vtc")
    second = slotlab("rerun", str(first.folder))
    third = slotlab("rerun", str(second.folder))
    assert third.code == 0, third.err
    assert json.loads((third.folder / "meta.json").read_text())["weights"] == {"heavy": 1.0, "light": 3.0}
    pd.testing.assert_frame_equal(requests(first.folder), requests(third.folder))


def test_a_run_on_the_real_engine_can_be_rerun_on_the_simulated_one(slotlab):
    first = slotlab("workload.requests=3", "load.rates=[100]")
    again = slotlab("rerun", str(first.folder), "engine=simulated")
    assert again.code == 0, again.err
    same = ["id", "scheduled_arrival", "prompt_tokens", "output_tokens", "max_tokens"]
    pd.testing.assert_frame_equal(requests(first.folder)[same], requests(again.folder)[same])
    assert slotlab("rerun", str(first.folder)).code == 0


def test_of_several_points_one_may_be_named_whose_requests_come_when_they_were_sent(slotlab):
    folder = slotlab("engine=simulated", "workload.requests=5", "load.rates=[10,20]").folder
    assert slotlab("rerun", str(folder), "workload.point=5").err == "slotlab: workload.point=5: must be one of 0, 1\n"
    again = slotlab("rerun", str(folder), "workload.point=1", "load=native")
    assert again.code == 0, again.err
    first = requests(folder)
    pd.testing.assert_frame_equal(
        first[first["point"] == 1].drop(columns="point").reset_index(drop=True), requests(again.folder).drop(columns="point")
    )


def test_requests_that_were_rejected_are_asked_for_again(slotlab):
    words = ("workload=explicit", "workload.lengths=[2,2]", "workload.prompts=[5,700]", "engine.num_blocks=40")
    first = slotlab("engine=simulated", *words)
    again = slotlab("rerun", str(first.folder), "engine.num_blocks=80")
    assert [*requests(first.folder)["status"]] == ["finished", "rejected"]
    assert [*requests(again.folder)["status"]] == ["finished", "finished"]


def test_a_sweep_over_policies_may_follow_a_run(slotlab):
    first = slotlab(*RUN)
    again = slotlab("rerun", str(first.folder), "-m", "policy=fcfs,sjf")
    assert again.code == 0, again.err
    assert (again.folder / "sweep.json").is_file()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "rerun: must be followed by the folder of a run"),
        (("policy=sjf",), "rerun: must be followed by the folder of a run"),
        (("nowhere",), "rerun nowhere: must be the folder of a run (there is no meta.json in it)"),
    ],
)
def test_what_is_no_run_is_refused(slotlab, words, line):
    said = slotlab("rerun", *words)
    assert said.code == 2 and said.err.startswith(f"slotlab: {line}") and said.err.count("\n") == 1


def test_a_file_that_is_no_record_is_refused(slotlab, tmp_path):
    path = tmp_path / "requests.parquet"
    path.write_text("text")
    said = slotlab("engine=simulated", "workload=rerun", f"workload.path={path}", "workload.lossy=true")
    assert said.code == 2 and said.err.startswith(f"slotlab: {path}: is no Parquet file") and said.err.count("\n") == 1
