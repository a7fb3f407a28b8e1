"""A disk that is full: the status is what was kept, in the folder and in MLflow, and the line names the file."""

from __future__ import annotations

import errno
import json
import sqlite3
from pathlib import Path

import pytest

from slotlab import writing as module
from slotlab.writing import write_text, writing

QUICK = ("engine=simulated", "load.rates=[8]", "workload.requests=12")


def full(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """From now on the disk has no room for files of these names."""
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if Path(target).name in names:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(module.Path, "replace", replace)


@pytest.mark.parametrize("name", ["requests.parquet", "steps.parquet", "series.parquet", "curve.json", "curve.csv", "curve.png"])
def test_a_run_that_could_not_be_kept_failed_wherever_that_is_asked(slotlab, monkeypatch, tmp_path, name):
    full(monkeypatch, name)
    said = slotlab(*QUICK, tracking="mlflow")
    assert said.code == 2 and said.err == f"slotlab: {said.folder / name}: No space left on device\n"
    assert json.loads((said.folder / "meta.json").read_text())["status"] == "FAILED"
    with sqlite3.connect(tmp_path / "mlflow.db") as db:
        assert db.execute("select status from runs").fetchall() == [("FAILED",)]
    assert not list(said.folder.glob(".*.*"))


def test_the_status_is_right_even_where_no_new_file_can_be_written(slotlab, monkeypatch):
    calls = []
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        calls.append(target)
        if len([call for call in calls if Path(call).name == "meta.json"]) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(module.Path, "replace", replace)
    said = slotlab(*QUICK)
    assert json.loads((said.folder / "meta.json").read_text())["status"] == "FINISHED"


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "before")
    with pytest.raises(RuntimeError), writing(path) as partial:
        partial.write_text("aft")
        raise RuntimeError
    assert path.read_text() == "before" and [*tmp_path.iterdir()] == [path]
