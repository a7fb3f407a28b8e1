"""Signals at random moments of a run's life: `python tests/lab/random_signals.py 200` counts how the runs end."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUN = (sys.executable, "-m", "slotlab", "load.rates=[50]", "workload.requests=40")


def outcome(engine: str, number: signal.Signals, moment: float) -> tuple[str, float]:
    """Start a run, send the signal after `moment` seconds (never, if infinite); how it ended, and the seconds it lived."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        run = subprocess.Popen(
            [*RUN, f"engine={engine}"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heed
        )
        try:
            run.wait(None if moment == float("inf") else moment)
        except subprocess.TimeoutExpired:
            run.send_signal(number)
        said = run.communicate()[1]
        lines = "one line" if said.count("\n") == 1 else f"{said.count(chr(10))} lines"
        running = " RUNNING" if is_running(Path(folder)) else ""
        return f"exit {run.returncode}, {lines}{running}", time.monotonic() - began


def heed() -> None:
    """Whoever starts this may have some ignored, as nohup does and a shell does for its background jobs."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)


def is_running(folder: Path) -> bool:
    """Whether the run's folder or the database says that it goes on."""
    if any('"status": "RUNNING"' in meta.read_text() for meta in folder.glob("slotlab-runs/*/*/meta.json")):
        return True
    if not (folder / "mlflow.db").exists():
        return False
    with sqlite3.connect(folder / "mlflow.db") as db:
        return any(status == "RUNNING" for (status,) in db.execute("SELECT status FROM runs"))


def main(count: int) -> None:
    """Count the outcomes on each engine."""
    rng = random.Random(0)
    for engine in ("simulated", "paged"):
        life = outcome(engine, signal.SIGTERM, float("inf"))[1]
        found: Counter[str] = Counter()
        for i in range(count // 2):
            number = NUMBERS[i % len(NUMBERS)]
            found[f"{number.name}: {outcome(engine, number, rng.uniform(0, life))[0]}"] += 1
        print(engine, f"({life:.1f} s)", *(f"\n  {n} x {what}" for what, n in sorted(found.items())), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
