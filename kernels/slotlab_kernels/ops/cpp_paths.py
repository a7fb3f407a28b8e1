"""The C++ kernels are compiled in one of several ways; what the processor says decides which.

Between paths the sums of a row go in another order, so tokens may differ by rounding: the record names the path.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slotlab_kernels.ops.cpp_build import Hung, Library, build
from slotlab_kernels.ops.cpp_cache import Unusable


@dataclass(frozen=True)
class Target:
    """One way to compile: the compiler's flags, and what /proc/cpuinfo must list on a processor that is to run it."""

    name: str
    flags: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()


AVX512 = frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl"))
BF16 = (*(f"-m{flag}" for flag in sorted(AVX512)), "-mfma", "-mavx512bf16")
TARGETS = {
    target.name: target
    for target in (
        Target("cpp (amx)", (*BF16, "-mamx-tile", "-mamx-bf16"), AVX512 | {"avx512_bf16", "amx_tile", "amx_bf16"}),
        Target("cpp (avx512-bf16)", BF16, AVX512 | {"avx512_bf16"}),
        Target("cpp (avx2)", ("-mavx2", "-mfma"), frozenset(("avx2", "fma"))),
        Target("cpp (generic)"),
    )
}
"""The fastest first; the last runs on any processor."""


NAMES = ("cpp", *TARGETS)


@cache
def best() -> tuple[Library | None, dict[str, str]]:
    """The first path that the processor can run and that compiles, loads and passes its trial; remarks on it and those before."""
    remarks: dict[str, str] = {}
    for name in here():
        try:
            found = library(name)
        except Unusable as error:
            remarks[name] = f"cannot run here: {error}"
            if isinstance(error, Hung):
                break  # the next one would take as long
            continue
        return found, remarks | ({name: found.remark} if found.remark else {})
    reasons = {*remarks.values()}
    return None, {"cpp": reasons.pop()} if len(reasons) == 1 else remarks


@cache
def library(name: str) -> Library:
    """The kernels of one path, or of the best if it is `cpp`; Unusable if they cannot be had or the processor cannot run them."""
    if name == "cpp":
        found, remarks = best()
        if found is None:
            raise Unusable("; ".join(remarks.values()).removeprefix("cannot run here: "))
        return found
    target = TARGETS[name]
    if lacks := lacking(target):
        raise Unusable(f"the processor has no {', '.join(lacks)}")
    return build(name, target.flags)


@cache
def why_not(name: str) -> str | None:
    """Why a path, or any if it is `cpp`, cannot run here, in a line; None if it can."""
    try:
        library(name)
    except Unusable as error:
        return str(error)
    return None


def here() -> list[str]:
    """The paths that the processor could run."""
    return [name for name, target in TARGETS.items() if not lacking(target)]


def lacking(target: Target) -> list[str]:
    """What the processor would need besides."""
    return sorted(target.needs - processor_flags())


def processor_flags() -> frozenset[str]:
    """The instruction sets that the processor has and the system has switched on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if platform.machine() == "x86_64" and info.exists() else []
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))


def forget() -> None:
    """Ask again for the processor, the compiler and the cache."""
    for asked in (best, library, why_not):
        asked.cache_clear()
