"""Is the CUDA path right, and how far is it from what the device can do? One command, under ten minutes, without a network.

    python experiments/gpu_check/run.py

Writes results.json (`--out`) and prints a table. With `--device cpu` all runs at toy size, which proves nothing about speed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for part 7, and read by torch when it multiplies first
import numpy
import torch
from correctness import check_all
from engine import measure_engine
from kernels import measure_kernels
from measure import Bench, Finding, Timer, measure_ceilings
from rich.console import Console
from rich.table import Table
from sizes import FULL, TOY
from steps import measure_decodes, measure_prefills

from slotlab_kernels.device import resolve_device, resolve_dtype
from slotlab_kernels.graphs import CudaGraphs, Graphs
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.weights import random_llama


class Remembered:
    """Graphs of a CPU: the work itself, done again. They save nothing."""

    def capture(self, work: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return work


def measure(bench: Bench, names: dict[str, str]) -> Iterable[Finding]:
    """All seven parts, each finding as it comes."""
    ops = choose_ops(bench.device, names)

    def backend() -> Graphs:
        return CudaGraphs() if bench.device.type == "cuda" else Remembered()

    yield from measure_ceilings(bench)
    yield from measure_kernels(bench, ops)
    model = random_llama(bench.sizes.model, bench.device, bench.dtype, seed=0)
    yield from measure_decodes(bench, model, ops, backend())
    wide = random_llama(bench.sizes.wide, bench.device, bench.dtype, seed=0)
    yield from measure_prefills(bench, {"the model": model, "the wide model": wide}, ops)
    del wide
    yield from measure_engine(bench, model, ops, backend())
    yield from check_all(bench, model, ops, backend())


def facts(bench: Bench, names: dict[str, str]) -> dict[str, object]:
    """Hardware and versions."""
    import triton

    found: dict[str, object] = {
        "device": bench.device.type, "dtype": str(bench.dtype), "ops": choose_ops(bench.device, names).names,
        "python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__,
        "numpy": numpy.__version__, "processor": platform.machine(), "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip
    if bench.device.type == "cuda":
        card = torch.cuda.get_device_properties(bench.device)
        found |= {"gpu": card.name, "memory": card.total_memory, "multiprocessors": card.multi_processor_count}
        found |= {"capability": f"{card.major}.{card.minor}", "cuda": torch.version.cuda}
    return found


def table(findings: Iterable[Finding]) -> Table:
    """All findings, each beside its floor."""
    shown = Table("part", "what", title="gpu_check")
    for header in ("measured", "floor", "share", "target", ""):
        shown.add_column(header, justify="right")
    last = ""
    for one in sorted(findings, key=lambda one: one.part):
        cells = [f"{one.value:,.4g} {one.unit}", *("" if x is None else f"{x:,.4g}" for x in (one.floor, one.share, one.target))]
        verdict = {True: "[green]ok", False: "[red]no", None: ""}[one.ok]
        shown.add_row(one.part if one.part != last else "", one.name, *cells, verdict)
        last = one.part
    return shown


def main() -> int:
    """Measures, writes, prints. Exit code 1 where something is not right; a target that is missed only shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--dtype", default="auto", help="auto, fp32, bf16 or fp16")
    parser.add_argument("--ops", action="append", default=[], metavar="OP=NAME", help="an implementation for an op")
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    options = parser.parse_args()
    device = resolve_device(options.device)
    sizes, names = (FULL if device.type == "cuda" else TOY), dict(pair.split("=", 1) for pair in options.ops)
    bench = Bench(device, resolve_dtype(options.dtype, device), sizes, Timer(device, sizes.repeats))
    console, start, findings = Console(stderr=True), time.perf_counter(), list[Finding]()
    for finding in measure(bench, names):
        if device.type == "cpu" and finding.target is not None:
            finding = replace(finding, target=None, ok=None)  # toy sizes meet or miss nothing
        findings.append(finding)
        console.print(
            f"[{time.perf_counter() - start:5.0f} s] {finding.part}: {finding.name}: {finding.value:.4g} {finding.unit}",
            markup=False,
        )
    document = {
        "facts": facts(bench, names),
        "seconds": time.perf_counter() - start,
        "findings": [asdict(one) for one in findings],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    Console(width=160).print(table(findings))
    if device.type == "cpu":
        print("A CPU at toy size: this proves that the script runs, and nothing about speed.")
    return int(any(one.ok is False for one in findings if one.part == "7 correctness"))


if __name__ == "__main__":
    sys.exit(main())
