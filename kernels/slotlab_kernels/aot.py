"""Compiles every Triton kernel ahead of time, on a machine without a GPU, and judges the machine code.

    python -m slotlab_kernels.aot [--target sm_80|sm_90|gfx942]

Prints a table and what is broken of these rules; exit code 1 if anything is. No registers may spill, and no stack; shared
memory must fit what the smallest GPUs of the family have; loads must be wide, and products done by matrix instructions.
"""

import argparse
import os
import sys

from rich.console import Console
from rich.table import Table

from slotlab_kernels.aot_figures import TARGETS, Figures, compile_for
from slotlab_kernels.aot_launches import launches

SHARED_LIMIT = {"sm_80": 99 * 1024, "sm_90": 99 * 1024, "gfx942": 64 * 1024}
"""Bytes a program may have: of sm_86 and sm_89, which run the code of sm_80, and of a gfx942 itself."""
MATRIX = {
    "sm_80": {"attend": "HMMA", "attend_split": "HMMA"},
    "sm_90": {"attend": "HGMMA", "attend_split": "MMA"},  # any: HGMMA takes at least 64 rows, and a decode has 16
    "gfx942": {"attend": "v_mfma", "attend_split": "v_mfma"},
}
"""The matrix instruction, or a part of its name, that a kernel must have."""
WIDTH = 130
"""Columns of a table that is not printed to a terminal."""


def compile_all(target: str) -> list[Figures]:
    """The figures of every kernel on one target."""
    return [compile_for(launch, target) for launch in launches(TARGETS[target].backend)]


def broken_rules(figures: Figures) -> list[str]:
    """What is wrong with a compiled kernel, in words; empty if nothing is."""
    broken = []
    if figures.spills or figures.stack:
        broken.append(f"{figures.spills} spills, {figures.stack} bytes of stack")
    if figures.shared > SHARED_LIMIT[figures.target]:
        broken.append(f"{figures.shared} bytes of shared memory, more than {SHARED_LIMIT[figures.target]}")
    if not figures.wide_loads:
        broken.append("no 128-bit load")
    wanted = MATRIX[figures.target].get(figures.kernel)
    if wanted and not any(wanted in name for name in figures.matrix):
        broken.append(f"no {wanted}")
    return broken


def _table(target: str, rows: list[Figures]) -> Table:
    table = Table("kernel", "shape", title=target)
    for name in ("registers", "stack", "spills", "shared", "wide loads"):
        table.add_column(name, justify="right")
    table.add_column("matrix instructions")
    for row in rows:
        numbers = (row.registers, row.stack, row.spills, row.shared, row.wide_loads)
        matrix = ", ".join(f"{count} {name}" for name, count in row.matrix.items())
        table.add_row(row.kernel, row.shape, *map(str, numbers), matrix, style="red" if broken_rules(row) else None)
    return table


def main(words: list[str]) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m slotlab_kernels.aot", description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    target = parser.parse_args(words).target
    if os.environ.get("TRITON_INTERPRET") == "1":
        parser.error("TRITON_INTERPRET=1 is set: the interpreter compiles nothing; unset it")
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    broken = []
    for name in [target] if target else TARGETS:
        rows = compile_all(name)
        console.print(_table(name, rows))
        broken += [f"{row.kernel} ({row.shape}, {name}): {what}" for row in rows for what in broken_rules(row)]
    for line in broken or ["All kernels keep the rules."]:
        console.print(line, markup=False)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
