"""What a run depends on beside its config: the code, the packages, the machine."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("slotlab", "torch", "triton", "numba", "numpy", "mlflow", "hydra-core")


@cache
def facts() -> dict[str, str]:
    """Tags about code, packages and machine."""
    found = {f"version.{name}": installed(name) for name in PACKAGES}
    return {**found, **git_state(), "python": platform.python_version(), "host": platform.node(), "processor": processor()}


def installed(name: str) -> str:
    """The version of a package, or `none`."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def git_state() -> dict[str, str]:
    """The commit of the checkout that this code runs from, and whether it was changed; nothing for an installed wheel."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return {}
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return {"git.commit": commit, "git.dirty": str(bool(_git(root, "status", "--porcelain"))).lower()}
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.strip()


def processor() -> str:
    """The processor's name and how many of them this process may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} x{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"


def peak_mib() -> int:
    """Most memory that this process has held so far, in MiB; in a sweep, that of the jobs before counts too."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
