"""Compiles the C++ kernels: once, by the g++ that is here, into the user's cache folder.

The kernels use OpenMP. Torch brings its own copy of the OpenMP library under the usual name and is loaded first, so that both
share one pool of threads: as many as `torch.get_num_threads()`, and never twice that.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch  # noqa: F401 (loads the OpenMP library that the kernels are to share)
from filelock import FileLock, Timeout

from slotlab_kernels.ops.cpp_cache import Unusable, cache_folder, fault, seal

SOURCES = Path(__file__).parent / "cpp"
TRIAL = Path(__file__).parent / "cpp_trial.py"
COMMON = ("-O3", "-std=c++17", "-fopenmp", "-shared", "-fPIC", "-ffp-contract=fast")
COMPILE_S, TRIAL_S, VERSION_S = 240.0, 60.0, 20.0
SYMBOLS = [
    "prepare",
    *(
        f"{op}_{dtype}"
        for op in ("packed", "pack", "linear", "rms_norm", "add_rms_norm", "rope_store", "silu_mul", "paged_attention")
        for dtype in ("fp32", "bf16")
    ),
]


class Hung(Unusable):
    """A process did not end in time."""


@dataclass(frozen=True)
class Library:
    """The kernels of a path, loaded. `remark`: what was wrong with those in the cache, if they had to be compiled anew."""

    name: str
    kernels: ctypes.CDLL
    remark: str | None


def build(name: str, flags: Sequence[str]) -> Library:
    """The kernels compiled with these flags; Unusable if they do not compile, or do not run."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unusable("g++ is not installed")
    path = cache_folder() / f"ops-{_key(compiler, flags)}.so"
    damage = _ensure(path, [compiler, *COMMON, *flags]) if fault(path) else None
    try:
        kernels = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unusable(f"the compiled library does not load: {error}") from None
    if refusal := kernels.prepare():
        raise Unusable(f"the system refuses what it needs: {os.strerror(refusal)}")
    return Library(name, kernels, damage and f"compiled anew: {damage}")


def _ensure(path: Path, command: list[str]) -> str | None:
    """Builds it, unless another process has meanwhile. Returns what was wrong with a file that lay there."""
    try:
        with FileLock(path.with_suffix(".lock"), timeout=COMPILE_S + TRIAL_S):
            why = fault(path)
            damage = why if os.path.lexists(path) else None
            if why:
                with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                    built = Path(folder) / path.name
                    _compile(command, built)
                    _try(built)
                    seal(built, path)
            return damage
    except Timeout:
        raise Hung(f"another process has been compiling for {COMPILE_S + TRIAL_S:.0f} s") from None
    except OSError as error:
        raise Unusable(f"what is compiled cannot be kept in {path.parent}: {error.strerror or error}") from None


def _compile(command: list[str], built: Path) -> None:
    code, said = _run("g++", [*command, *map(str, _sources("*.cpp")), "-o", str(built)], COMPILE_S)
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
        raise Hung(f"{name} did not end in {limit:.0f} s") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode, said.decode(errors="backslashreplace")


def _sources(pattern: str) -> list[Path]:
    return sorted(SOURCES.glob(pattern))


def _key(compiler: str, flags: Sequence[str]) -> str:
    """Of everything that the machine code depends on: sources, flags, compiler."""
    _, version = _run("g++ --version", [compiler, "--version"], VERSION_S)
    parts = [path.read_text() for path in _sources("*.cpp") + _sources("*.h")]
    return hashlib.sha256("\n".join([*parts, *COMMON, *flags, version]).encode()).hexdigest()[:16]
