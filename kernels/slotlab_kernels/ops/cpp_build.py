"""Compiles the C++ kernels for this processor: once, by the g++ that is here, into the user's cache folder.

The kernels use OpenMP. Torch brings its own copy of the OpenMP library under the usual name and is loaded first, so that both
share one pool of threads: as many as `torch.get_num_threads()`, and never twice that.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch  # noqa: F401 (loads the OpenMP library that the kernels are to share)

SOURCES = Path(__file__).parent / "cpp"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-ffp-contract=fast")


@cache
def why_not() -> str | None:
    """Why the kernels cannot run here, in a few words; None if they can."""
    if shutil.which("g++") is None:
        return "g++ is not installed"
    try:
        library()
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if "error" in line]
        return f"g++ did not compile it: {lines[0] if lines else error}"
    except OSError as error:
        return f"the compiled library does not load: {error}"
    return None


@cache
def library() -> ctypes.CDLL:
    """The compiled kernels. Raises CalledProcessError if they do not compile, OSError if they do not load."""
    sources = sorted(SOURCES.glob("*.cpp"))
    path = _folder() / f"ops-{_key(sources)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = Path(folder) / path.name
            command = ["g++", *FLAGS, *map(str, sources), "-o", str(built)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            built.replace(path)  # in one move: others may be building it too
    return ctypes.CDLL(str(path))


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slotlab"


def _key(sources: list[Path]) -> str:
    """Of everything that the machine code depends on: sources, flags, compiler, processor."""
    version = subprocess.run(["g++", "--version"], check=True, capture_output=True, text=True).stdout
    parts = [path.read_text() for path in (*sources, *sorted(SOURCES.glob("*.h")))]
    return hashlib.sha256("\n".join([*parts, *FLAGS, version, _processor()]).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors of other instruction sets apart: the flags on Linux, the name elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
