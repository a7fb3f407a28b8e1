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
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch  # noqa: F401 (loads the OpenMP library that the kernels are to share)
from filelock import FileLock, Timeout

from slotlab_kernels.ops.cpp_cache import Unusable, cache_folder, fault, seal

SOURCES = Path(__file__).parent / "cpp"
TRIAL = Path(__file__).parent / "cpp_trial.py"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-ffp-contract=fast")
COMPILE_S, TRIAL_S, VERSION_S = 240.0, 60.0, 20.0
SYMBOLS = [
    "pack",
    "panel",
    *(
        f"{op}_{dtype}"
        for op in ("linear", "rms_norm", "add_rms_norm", "rope_store", "silu_mul", "paged_attention")
        for dtype in ("fp32", "bf16")
    ),
]


@dataclass(frozen=True)
class Library:
    """The kernels, loaded. `remark`: what was wrong with those that lay in the cache, if they had to be compiled anew."""

    kernels: ctypes.CDLL
    remark: str | None


@cache
def why_not() -> str | None:
    """Why the kernels cannot run here, in a line; None if they can."""
    try:
        library()
    except Unusable as error:
        return str(error)
    return None


@cache
def library() -> Library:
    """The compiled kernels; Unusable if there are none to be had."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unusable("g++ is not installed")
    path = cache_folder() / f"ops-{_key(compiler)}.so"
    damage = _ensure(path, compiler) if fault(path) else None
    try:
        return Library(ctypes.CDLL(str(path)), damage and f"compiled anew: {damage}")
    except OSError as error:
        raise Unusable(f"the compiled library does not load: {error}") from None


def _ensure(path: Path, compiler: str) -> str | None:
    """Builds it, unless another process has meanwhile. Returns what was wrong with a file that lay there."""
    try:
        with FileLock(path.with_suffix(".lock"), timeout=COMPILE_S + TRIAL_S):
            why = fault(path)
            damage = why if os.path.lexists(path) else None
            if why:
                with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                    built = Path(folder) / path.name
                    _compile(compiler, built)
                    _try(built)
                    seal(built, path)
            return damage
    except Timeout:
        raise Unusable(f"another process has been compiling for {COMPILE_S + TRIAL_S:.0f} s") from None
    except OSError as error:
        raise Unusable(f"what is compiled cannot be kept in {path.parent}: {error.strerror or error}") from None


def _compile(compiler: str, built: Path) -> None:
    code, said = _run("g++", [compiler, *FLAGS, *map(str, _sources("*.cpp")), "-o", str(built)], COMPILE_S)
    if code != 0:
        lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or [f"exit code {code}"]
        raise Unusable(f"g++ did not compile it: {lines[0]}")
    if not built.is_file():
        raise Unusable("g++ reported success and left no file")


def _try(built: Path) -> None:
    """One call in a process of its own: what g++ left may crash, hang, or compute something else."""
    code, said = _run("a trial of what g++ compiled", [sys.executable, "-I", str(TRIAL), str(built), *SYMBOLS], TRIAL_S)
    if code != 0:
        died = f"dies of {signal.Signals(-code).name}" if code < 0 else f"ends with {code}"
        raise Unusable(f"what g++ compiled {' '.join(said.split()) or died}")


def _run(name: str, command: Sequence[str], limit: float) -> tuple[int, str]:
    """Exit code and output of a command; Unusable if it does not start, or takes longer than `limit` seconds.

    It has a session of its own, so that the compilers that g++ has started end with it. Its words may be in any encoding.
    """
    pipe, quiet, settings = subprocess.PIPE, subprocess.DEVNULL, os.environ | {"LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command, stdin=quiet, stdout=pipe, stderr=subprocess.STDOUT, env=settings, start_new_session=True
        )  # fmt: skip
    except OSError as error:
        raise Unusable(f"{name} does not start: {error.strerror or error}") from None
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        raise Unusable(f"{name} did not end in {limit:.0f} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, said.decode(errors="backslashreplace")


def _sources(pattern: str) -> list[Path]:
    return sorted(SOURCES.glob(pattern))


def _key(compiler: str) -> str:
    """Of everything that the machine code depends on: sources, flags, compiler, processor."""
    _, version = _run("g++ --version", [compiler, "--version"], VERSION_S)
    parts = [path.read_text() for path in _sources("*.cpp") + _sources("*.h")]
    return hashlib.sha256("\n".join([*parts, *FLAGS, version, _processor()]).encode()).hexdigest()[:16]


def _processor() -> str:
    """What tells processors of other instruction sets apart: the flags on Linux, the name elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
