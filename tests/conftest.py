"""What all tests share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Said(NamedTuple):
    """What a command line left behind."""

    code: int
    out: str
    err: str
    folder: Path  # of the run or the sweep


Command = Callable[..., Said]


@pytest.fixture
def slotlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command `slotlab`, run in this process in an empty folder; tracking is off unless the test chooses it."""
    from slotlab.lab.cli import command

    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "SLOTLAB_PLUGIN_FILES", "SLOTLAB_DISABLE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str, tracking: str = "none") -> Said:
        options = (
            []
            if words[:1] in (("plugins",), ("ui",), ("compare",), ("export",)) or "--help" in words
            else [f"tracking.kind={tracking}"]
        )
        monkeypatch.setattr(sys, "argv", ["slotlab", *words, *options])
        try:
            code = command(sys.argv[1:])
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capfd.readouterr()
        folders = sorted(tmp_path.glob("slotlab-runs/*/*"), key=lambda path: path.name)
        return Said(code, said.out, said.err, folders[-1] if folders else tmp_path)

    return run
