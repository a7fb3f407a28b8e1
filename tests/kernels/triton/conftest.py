"""Runs scripts of this folder in processes of their own: TRITON_INTERPRET is read when a kernel is defined, once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

HERE = Path(__file__).parent
Script = Callable[..., str]
sys.path.append(str(HERE))  # the names of the cases are needed to collect the tests


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """What a script with these words prints; run once, also where several workers of pytest-xdist want it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def run(name: str, *words: str, **environment: str) -> str:
        kept = shared / "-".join((name, *words))
        with FileLock(f"{kept}.lock"):
            if not kept.exists():
                kept.write_text(_run(name, words, environment))
            return kept.read_text()

    return run


def _run(name: str, words: tuple[str, ...], environment: dict[str, str]) -> str:
    cache = HERE.parents[2] / ".cache" / "triton"
    known = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    threads = {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": os.environ.get("TRITON_CACHE_DIR", str(cache))}
    command = [sys.executable, str(HERE / f"{name}.py"), *words]
    done = subprocess.run(command, env=known | threads | environment, capture_output=True, text=True)
    return done.stdout if not done.returncode else f"{done.stdout}\nended with {done.returncode}: {done.stderr[-2000:]}"
