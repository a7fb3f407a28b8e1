"""The command line, as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

QUICK = ("engine=simulated", "load.rates=[50,200]", "workload.requests=40")
REPEATABLE = (
    "requests.parquet",
    "steps.parquet",
    "slots.parquet",
    "arrivals.parquet",
    "series.parquet",
    "curve.json",
    "curve.csv",
    "curve.png",
    "config.yaml",
)


def test_a_run_leaves_a_folder_that_is_complete_without_mlflow(slotlab):
    said = slotlab(*QUICK)
    assert said.code == 0, said.err
    assert {path.name for path in said.folder.iterdir()} == {*REPEATABLE, "host.parquet", "meta.json"}
    curve = json.loads((said.folder / "curve.json").read_text())
    assert [row["rate"] for row in curve] == [50, 200]
    requests = pd.read_parquet(said.folder / "requests.parquet")
    assert len(requests) == 80 and set(requests["status"]) == {"finished"}
    meta = json.loads((said.folder / "meta.json").read_text())
    assert (meta["status"], meta["oracle"], meta["time_unit"]) == ("FINISHED", False, "s")
    assert "mean TTFT" in said.out and str(said.folder) in said.out


def test_two_virtual_runs_of_one_seed_leave_identical_bytes(slotlab):
    words = (*QUICK, "policy=vtc", "load.repeats=2", "workload.tenants=[{name:heavy,share:0.9},{name:light,share:0.1}]")
    first, second = slotlab(*words).folder, slotlab(*words).folder
    assert first != second
    for name in REPEATABLE:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_jumps_leave_the_bytes_of_single_steps(slotlab):
    jumped, single = slotlab(*QUICK, "policy=vtc").folder, slotlab(*QUICK, "policy=vtc", "engine.jump=false").folder
    for name in ("requests.parquet", "steps.parquet", "slots.parquet", "series.parquet", "curve.json"):
        assert (jumped / name).read_bytes() == (single / name).read_bytes(), name


def test_another_seed_or_repeat_draws_other_requests(slotlab):
    here = pd.read_parquet(slotlab(*QUICK, "load.repeats=2").folder / "requests.parquet")
    there = pd.read_parquet(slotlab(*QUICK, "seed=1").folder / "requests.parquet")
    first, second = (list(here[(here["repeat"] == r) & (here["point"] == 0)]["prompt_tokens"]) for r in (0, 1))
    other = list(there[there["point"] == 0]["prompt_tokens"])
    assert first != second and first != other


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["policy=sjff"], "policy=sjff: no such choice; did you mean sjf? there is: "),
        (["polcy=sjf"], "polcy: no such option or group; did you mean policy?"),
        (["policy=null"], "policy=null: must be one of "),
        (["policy=sjf", "policy.agin=3"], "policy.agin: SJF has no option agin; did you mean aging?"),
        (["policy=sjf", "+policy.agin=3"], "policy.agin: SJF has no such option; did you mean aging?"),
        (["policy=sjf", "policy.aging=abc"], "policy.aging=abc: must be a number"),
        (["policy=sjf", "policy.aging=-1"], "policy.aging=-1.0: must be at least 0"),
        (["policy=fcfs,sjf"], "policy=fcfs,sjf: several values; add -m"),
        (["workload.requests=0"], "workload.requests=0: must be at least 1 (the workload would be empty)"),
        (["workload=explicit"], "workload.lengths=[]: must be one or more"),
        (["workload.tenants=[]"], "workload.tenants=[]: must be one or more"),
        (["workload.tenants=[{name:a,share:-2}]"], "workload.tenants[a].share=-2.0: must be greater than 0"),
        (["workload.output.law=pareto"], "workload.output.law=pareto: must be"),
        (["model=gguf"], "model.path=None: must be the path of a model"),
        (["model=gguf", "model.path=/nope"], "model.path: /nope"),
        (["engine.device=tpu"], "engine.device=tpu: must be auto, cpu or cuda"),
        (["engine.num_blocks=0"], "engine.num_blocks=0: must be from 1 to 10000000"),
        (["batching.max_num_seqs=0"], "batching.max_num_seqs=0: must be at least 1"),
        (["load.rates=[]"], "load.rates=[]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (["load.repeats=0"], "load.repeats=0: must be at least 1"),
        (["seed=x"], "seed=x: must be a whole number"),
        (["slo.ttft=-1"], "slo.ttft=-1.0: must be greater than 0, or null"),
        (["-m", "experiment=pad_waste,join_mid_flight"], "one experiment at a time"),
        (["-m", "policy=fcfs,sjf", "policy.aging=1"], "policy.aging: FCFS has no option aging"),
        (["hydra.run.dir=/proc/nope"], "/proc/nope"),
        (["nonsense"], "nonsense"),
        (["+sed=3"], "sed: no such option or group; did you mean seed?"),
        (["policy=[fcfs]"], "policy=[fcfs]: must be one of "),
        (["~policy"], "~policy: must be one of "),
        (["policy=sjf", "policy.aging=inf"], "policy.aging=inf: must be finite, and at least 0"),
        (["engine.num_blocks=100000000000"], "engine.num_blocks=100000000000: must be from 1 to 10000000"),
        (["engine.ops={rope:torch}"], "+engine.ops.rope=VALUE"),
        (["workload.tenants=[{nam:a}]"], "has no option nam; did you mean name?"),
        (["-m", "policy=glob(zz*)"], "the sweep is empty"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(slotlab, words, line):
    said = slotlab(*words)
    assert said.code == 2
    assert line in said.err and said.err.count("\n") == 1, said.err
    assert "Traceback" not in said.out + said.err


def test_help_lists_every_choice_with_its_docstring_line(slotlab):
    from slotlab.lab.plugins import plugins

    said = slotlab("--help")
    assert said.code == 0
    for choice in plugins().choices.values():
        assert any(line.split()[:1] == [choice.name] and choice.summary in line for line in said.out.splitlines()), choice.name
    for experiment in ("static_vs_continuous", "policy_curves", "batch_size"):
        assert experiment in said.out


def test_tab_completes_choices_and_options():
    for typed, expected in (("policy=", "policy=vtc"), ("engine=simulated engine.c", "engine.cost=")):
        line = f"slotlab {typed}"
        answer = run_slotlab("-sc", "query=bash", env={"COMP_LINE": line, "COMP_POINT": str(len(line))})
        assert expected in answer.stdout.split(), answer


def test_a_sweep_runs_every_combination_and_compares_them(slotlab):
    said = slotlab("-m", "policy=fcfs,sjf_oracle", *QUICK[:2], "workload.requests=200", "batching.max_num_seqs=2,4")
    assert said.code == 0, said.err
    jobs = json.loads((said.folder / "sweep.json").read_text())["jobs"]
    assert [job["name"] for job in jobs] == [f"{p}, max_num_seqs={n}" for p in ("fcfs", "sjf_oracle") for n in (2, 4)]
    assert {"table.csv", "curves.png", "verdicts.json"} <= {path.name for path in said.folder.iterdir()}
    verdicts = json.loads((said.folder / "verdicts.json").read_text())
    for slots in (2, 4):
        expected = f"sjf_oracle, max_num_seqs={slots} against fcfs, max_num_seqs={slots}: won on mean TTFT"
        assert any(verdict.startswith(expected) for verdict in verdicts), verdicts


def test_all_policies_run_by_glob(slotlab):
    from slotlab.lab.plugins import plugins

    said = slotlab("-m", "policy=glob(*)", *QUICK)
    assert said.code == 0, said.err
    names = [job["name"] for job in json.loads((said.folder / "sweep.json").read_text())["jobs"]]
    assert set(plugins().names("policy")) | {"sjf_oracle"} == set(names)


def test_a_policy_whose_keys_are_all_equal_says_that_it_acts_as_fcfs(slotlab):
    assert "all keys are equal: the policy acts as fcfs" in slotlab(*QUICK, "policy=sjf").out
    assert "acts as fcfs" not in slotlab(*QUICK, "policy=sjf_oracle").out


def test_an_oracle_marks_the_run(slotlab):
    said = slotlab(*QUICK, "policy=sjf", "predictor=oracle")
    meta = json.loads((said.folder / "meta.json").read_text())
    assert meta["oracle"] and meta["choices"]["predictor"] == "oracle"
    assert set(pd.read_parquet(said.folder / "requests.parquet")["predictor"]) == {"oracle"}


def test_a_workload_with_times_of_its_own_is_served_at_them_unless_a_load_is_asked_for(slotlab):
    words = ("engine=simulated", "workload=explicit", "workload.lengths=[3,3]", "workload.arrivals=[0,4]")
    said = slotlab(*words)
    assert "load=native: workload=explicit has times of its own" in said.out
    assert list(pd.read_parquet(said.folder / "requests.parquet")["scheduled_arrival"]) == [0, 4]
    said = slotlab(*words, "load=rates", "load.rates=[2]")
    assert "load=native" not in said.out
    assert list(pd.read_parquet(said.folder / "requests.parquet")["scheduled_arrival"]) == [0, 0.5]


def test_a_request_that_never_fits_is_rejected_with_its_reason_and_the_run_goes_on(slotlab):
    words = ("workload=explicit", "workload.lengths=[2,2,2]", "workload.prompts=[5,3000,700]", "engine.num_blocks=40")
    said = slotlab(*words)
    assert said.code == 0, said.err
    requests = pd.read_parquet(said.folder / "requests.parquet")
    assert list(requests["status"]) == ["finished", "rejected", "rejected"]
    assert "exceed the context of 2048" in requests["reason"][1] and "needs 44 KV blocks of 40" in requests["reason"][2]


def test_a_failed_job_does_not_stop_the_others(slotlab, tmp_path, monkeypatch):
    (tmp_path / "bad.py").write_text(BAD_PLUGIN)
    said = run_slotlab(
        "-m", "policy=bad,fcfs", *QUICK, "tracking.kind=none", cwd=tmp_path, env={"SLOTLAB_PLUGIN_FILES": "bad.py"}
    )
    assert said.returncode == 1
    assert "bad: FAILED: Bad: order raised RuntimeError: no idea" in said.stdout
    (sweep,) = tmp_path.glob("slotlab-runs/*/*")
    assert [job["status"] for job in json.loads((sweep / "sweep.json").read_text())["jobs"]] == ["FAILED", "FINISHED"]


def test_brackets_in_a_path_are_no_markup(slotlab, tmp_path, monkeypatch):
    """rich would read them as its own, and fail or print another path."""
    folder = tmp_path / "b[red] [bold]x"
    folder.mkdir()
    monkeypatch.chdir(folder)
    said = slotlab(*QUICK)
    assert said.code == 0 and f"folder: {folder}" in said.out


def test_runs_at_other_loads_or_on_other_clocks_are_not_compared(slotlab):
    closed = ("load=concurrencies", "load.concurrencies=[1],[8]", "engine=simulated", "workload.requests=40")
    assert "not compared, they have different load points" in slotlab("-m", *closed).out
    assert "their clocks count different units" in slotlab("-m", *QUICK, "engine.cost=linear,unit").out


def test_everything_rejected_says_why(slotlab):
    said = slotlab(*QUICK, "engine.num_blocks=3")
    assert "requests rejected: needs " in said.out


def test_a_tracking_server_that_is_down_costs_one_line_and_keeps_the_folder(slotlab):
    said = slotlab(*QUICK, "tracking.uri=http://127.0.0.1:9", tracking="mlflow")
    assert said.code == 2
    assert "http://127.0.0.1:9" in said.err and said.err.count("\n") == 1
    assert (said.folder / "config.yaml").exists()


BAD_PLUGIN = """
from dataclasses import dataclass
from slotlab import Policy, hookimpl

@dataclass
class Bad(Policy):
    def order(self, waiting, view):
        raise RuntimeError("no idea")

@hookimpl
def slotlab_policies():
    return {"bad": Bad}
"""


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "slotlab", *words]


def environment(**extra: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "SLOTLAB_"))}
    return {**clean, "MLFLOW_DISABLE_TELEMETRY": "true", **extra}


def run_slotlab(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command_line(*words), cwd=cwd, env=environment(**(env or {})), capture_output=True, text=True)
