"""A contestant: a process that has loaded everything and waits until it is told to serve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import install
from jobs import THREADS

HERE = Path(__file__).parent
# name -> (environment, script, argument)
CONTESTANTS = {
    "slotlab": (None, "serve_slotlab.py", ""),
    "vllm eager": ("vllm", "serve_vllm.py", "eager"),
    "vllm compiled": ("vllm", "serve_vllm.py", "compiled"),
    "transformers bf16": ("transformers", "serve_transformers.py", "bf16"),
    "transformers fp32": ("transformers", "serve_transformers.py", "fp32"),
}


@dataclass
class Contestant:
    """Started with `start`; `serve` may be called any number of times."""

    name: str
    process: subprocess.Popen[str]
    versions: dict[str, str]

    @classmethod
    def start(cls, name: str, weights: Path, jobs: Path) -> Contestant:
        """Load it and let it serve once, unmeasured. What it prints goes to a log beside the weights."""
        peer, script, argument = CONTESTANTS[name]
        python = str(install.python(peer)) if peer else sys.executable
        with (weights.parent / f"{name.replace(' ', '_')}.log").open("w") as log:
            process = subprocess.Popen(
                [python, str(HERE / script), str(weights), str(jobs), *filter(None, [argument])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_environment(peer),
            )
        return cls(name, process, _line(name, process)["ready"])

    def serve(self) -> dict[str, Any]:
        """All requests once: seconds, cpu_seconds, outputs, and what else it tells."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return _line(self.name, self.process)

    def stop(self) -> None:
        """Let it end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def _line(name: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of JSON; a library may print others before the process has taken its output over."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith('{"'):
            told: dict[str, Any] = json.loads(line)
            return told
    raise SystemExit(f"{name} ended early; its log is beside the weights in .cache/peers/work")


def _environment(peer: str | None) -> dict[str, str]:
    """Two threads; for vLLM the OpenMP library that it recommends, which its own package brings."""
    environment = os.environ | {
        "OMP_NUM_THREADS": str(THREADS),
        "MKL_NUM_THREADS": str(THREADS),
        "TOKENIZERS_PARALLELISM": "false",
    }
    environment.pop("OMP_WAIT_POLICY", None)  # everybody as it comes: a machine of their own
    if peer == "vllm":
        environment["LD_PRELOAD"] = str(install.CACHE / "vllm" / "lib" / "libiomp5.so")
    return environment
