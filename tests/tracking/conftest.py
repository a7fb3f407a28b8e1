"""A clean environment for every test, and what several tests need."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")


@pytest.fixture(autouse=True)
def no_mlflow_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    logging.getLogger("slotlab.tracking.store").disabled = False  # as Hydra leaves it after a test that ran the command line


@pytest.fixture(scope="session")
def python() -> Callable[..., "subprocess.Popen[str]"]:
    """Start a Python program with slotlab on its path: python(code, *arguments, cwd=folder)."""

    def start(code: str, *arguments: str, cwd: Path) -> "subprocess.Popen[str]":
        env = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
        env["PYTHONPATH"] = str(ROOT / "framework")
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
