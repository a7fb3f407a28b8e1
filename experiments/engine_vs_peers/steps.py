"""Where the time of a step of ours goes, by op, in fp32 and in bf16, beside torch's matrix products alone.

    python experiments/engine_vs_peers/steps.py [RUNS]

Steps of both dtypes take turns; of each figure the least of RUNS is printed, so that what others do on the machine matters less.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import floor
import torch
from jobs import THREADS
from rich.console import Console
from rich.table import Table

from slotlab_kernels.ops import OPS
from slotlab_plugins.engines.paged import Paged
from slotlab_plugins.models.llama import SmolLM2

RUNS = 20
console = Console(width=120)


class Timed:
    """An open engine in one dtype, of which every op adds up its seconds."""

    def __init__(self, dtype: str) -> None:
        self.engine, self.spent = Paged("cpu", 16, 512, dtype=dtype), dict[str, float]()
        self.facts = self.engine.open(SmolLM2())
        runner = self.engine.runner
        runner.ops = replace(runner.ops, **{op: self.timed(op, getattr(runner.ops, op)) for op in OPS})

    def timed(self, op: str, run: Callable[..., Any]) -> Callable[..., Any]:
        """The op, with a clock."""

        def call(*args: Any, **options: Any) -> Any:
            start = perf_counter()
            result = run(*args, **options)
            self.spent[op] = self.spent.get(op, 0.0) + perf_counter() - start
            return result

        return call

    def step(self, rows: Any) -> dict[str, float]:
        """Milliseconds of one step: all of it, each op, and the rest."""
        self.spent.clear()
        start = perf_counter()
        self.engine.runner.step(rows)
        whole = perf_counter() - start
        parts = self.spent | {"the rest": whole - sum(self.spent.values()), "whole step": whole}
        return {name: seconds * 1e3 for name, seconds in parts.items()}


def least(found: list[dict[str, float]]) -> dict[str, float]:
    """Of each figure."""
    return {name: min(one.get(name, 0.0) for one in found) for name in found[0]}


def main(runs: int) -> None:
    """Measure and print."""
    torch.set_num_threads(THREADS)
    engines = {dtype: Timed(dtype) for dtype in ("fp32", "bf16")}
    for name, rows in floor.cases(16).items():
        found: dict[str, list[dict[str, float]]] = {dtype: [] for dtype in engines}
        products = {dtype: floor.products(one.engine, rows) for dtype, one in engines.items()}
        for _ in range(runs):
            for dtype, one in engines.items():
                step = one.step(rows)
                start = perf_counter()
                products[dtype]()
                found[dtype].append(step | {"torch's products alone": (perf_counter() - start) * 1e3})
        show(name, {dtype: least(times) for dtype, times in found.items()})
    console.print(f"processor: {floor.processor()}; linear: {engines['bf16'].facts['op.linear']}; least of {runs}")


def show(name: str, times: dict[str, dict[str, float]]) -> None:
    """A table of one kind of step."""
    table = Table(title=f"{name}, ms", title_justify="left")
    for column in ("", *times):
        table.add_column(column, justify="right" if column else "left")
    for part in next(iter(times.values())):
        table.add_row(part, *(f"{each[part]:.1f}" for each in times.values()))
    console.print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
