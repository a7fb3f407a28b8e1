"""Signals: one line, the right exit code, nothing RUNNING, what was measured kept. Runs send them to themselves."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

WORDS = ("engine=simulated", "load.rates=[50,200]", "workload.requests=40")
POLICY = """
import os
from dataclasses import dataclass
from slotlab import Policy, hookimpl

@dataclass
class Signalling(Policy):
    number: int = 15
    times: int = 1

    def __post_init__(self):
        self.calls = 0

    def arrived(self, req, view):
        self.calls += 1
        for _ in range(self.times if self.calls == 20 else 0):
            os.kill(os.getpid(), self.number)

@hookimpl
def slotlab_policies():
    return {"signalling": Signalling}
"""
AT = """
import os, sys
from importlib import import_module
from slotlab import signals
signals.install()
module, name, number = sys.argv.pop(1).split(":")
owner = import_module(module)
real = getattr(owner, name)
def sending(*args, **kwargs):
    os.kill(os.getpid(), int(number))
    return real(*args, **kwargs)
setattr(owner, name, sending)
from slotlab.lab.cli import main
main()
"""


def run(folder: Path, *words: str, at: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "signalling.py").write_text(POLICY)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "SLOTLAB_"))}
    env = {**clean, "MLFLOW_DISABLE_TELEMETRY": "true", "SLOTLAB_PLUGIN_FILES": "signalling.py"}
    start = ["-c", AT, at] if at else ["-m", "slotlab"]
    words = (sys.executable, *start, *WORDS, *words)
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, preexec_fn=heed)


def heed() -> None:
    """Whoever runs the tests may have some ignored, as nohup does and a shell does for its background jobs."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def mlflow_runs(folder: Path) -> list[str]:
    with sqlite3.connect(folder / "mlflow.db") as db:
        return [status for (status,) in db.execute("select status from runs")]


def metas(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["status"] for path in folder.glob("slotlab-runs/**/meta.json")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_while_serving_keeps_what_was_measured_and_ends_the_sweep(tmp_path: Path, number: int, code: int):
    said = run(tmp_path, "-m", "policy=signalling", f"policy.number={int(number)}", "seed=0,1", "tracking.kind=none")
    assert said.returncode == code and said.stderr.count("\n") == 1 and "what was measured is kept" in said.stderr, said
    assert metas(tmp_path) == ["KILLED"]
    (table,) = tmp_path.glob("slotlab-runs/*/*/0/requests.parquet")
    assert "aborted" in set(pd.read_parquet(table)["status"])
    assert [job["status"] for job in json.loads((table.parents[1] / "sweep.json").read_text())["jobs"]] == ["KILLED"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_second_ctrl_c_loses_nothing(tmp_path: Path, times: int):
    said = run(tmp_path, "policy=signalling", "policy.number=2", f"policy.times={times}")
    assert said.returncode == 130 and said.stderr.count("\n") == 1, said
    assert metas(tmp_path) == mlflow_runs(tmp_path) == ["KILLED"]
    (table,) = tmp_path.glob("slotlab-runs/*/*/requests.parquet")
    assert len(pd.read_parquet(table)) >= 19  # the twentieth is just arriving


@pytest.mark.parametrize("place", ["slotlab.lab.cli:dispatch", "slotlab.lab.app:run_job", "slotlab.lab.tracked:open_tracker"])
def test_a_signal_before_anything_is_measured_ends_at_once_with_one_line(tmp_path: Path, place: str):
    said = run(tmp_path, at=f"{place}:15")
    assert said.returncode == 143 and said.stderr.count("\n") == 1 and "Traceback" not in said.stderr, said
    assert set(metas(tmp_path)) <= {"KILLED"}
    assert not (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize("place", ["slotlab.record.tables:write_tables", "slotlab.record.charts:draw_curve"])
def test_a_signal_while_keeping_lets_the_keeping_end(tmp_path: Path, place: str):
    said = run(tmp_path, "tracking.kind=none", at=f"{place}:15")
    assert said.returncode == 143 and said.stderr.count("\n") == 1, said
    assert metas(tmp_path) == ["FINISHED"] and list(tmp_path.glob("slotlab-runs/*/*/curve.png"))


def test_a_signal_that_whoever_started_us_wants_ignored_stays_ignored(tmp_path: Path):
    code = "import signal; signal.signal(1, signal.SIG_IGN); from slotlab import signals; signals.install(); "
    code += "print(signal.getsignal(1).name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "SIG_IGN\n"
