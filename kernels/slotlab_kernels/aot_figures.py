"""What a compiled kernel takes and uses, read from its machine code: cuobjdump's words on a cubin, or AMD's assembly."""

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from slotlab_kernels.aot_launches import Launch

TARGETS = {"sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}


@dataclass(frozen=True)
class Figures:
    """Of one kernel on one target: registers per thread, bytes of stack and shared memory, and counts of instructions.

    `spills` counts loads and stores of registers in local memory; `matrix` is by name, as HMMA, HGMMA or v_mfma.
    """

    kernel: str
    shape: str
    target: str
    registers: int
    stack: int
    spills: int
    shared: int
    wide_loads: int
    matrix: dict[str, int]


def compile_for(launch: Launch, target: str) -> Figures:
    """Compiles ahead of time, without a GPU; Triton keeps the result in its cache. Raises what Triton raises."""
    compiled = triton.compile(launch.source, target=TARGETS[target], options=launch.options)
    read = _read_amd if TARGETS[target].backend == "hip" else _read_nvidia
    return Figures(launch.kernel, launch.shape, target, shared=compiled.metadata.shared, **read(compiled))


def _read_nvidia(compiled: Any) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage, code = (_cuobjdump(option, file.name) for option in ("-res-usage", "-sass"))
    resources = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    names = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", code, re.M)
    return {
        "registers": resources["REG"],
        "stack": resources["STACK"] + resources["LOCAL"],
        "spills": _count(names, ("LDL", "STL")),
        "wide_loads": sum(name.startswith(("LDG", "LDGSTS")) and ".128" in name for name in names),
        "matrix": {kind: count for kind in ("HMMA", "HGMMA") if (count := _count(names, (kind,)))},
    }


def _cuobjdump(option: str, path: str) -> str:
    tool = triton.knobs.nvidia.cuobjdump.path
    return subprocess.run([tool, option, path], capture_output=True, text=True, check=True).stdout


def _read_amd(compiled: Any) -> dict[str, Any]:
    code = compiled.asm["amdgcn"]
    figures = {name: int(value) for name, value in re.findall(r"\.(\w+):\s+(\d+)", code)}
    names = re.findall(r"^\s+([a-z]\w+)", code, re.M)
    return {
        "registers": figures["vgpr_count"],
        "stack": figures["private_segment_fixed_size"],
        "spills": figures["vgpr_spill_count"],
        "wide_loads": sum("load_dwordx4" in name for name in names),
        "matrix": {"v_mfma": count} if (count := _count(names, ("v_mfma",))) else {},
    }


def _count(names: Iterable[str], prefixes: tuple[str, ...]) -> int:
    return sum(name.startswith(prefixes) for name in names)
