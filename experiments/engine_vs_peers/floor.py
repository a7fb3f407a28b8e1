"""How near a step of ours comes to its matrix products alone, as torch computes them: the least of 20 runs of each."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Row
from slotlab_kernels.ops.cpp_paths import here
from slotlab_kernels.sampling import GREEDY
from slotlab_plugins.engines.paged import Paged

RUNS, CONTEXT = 20, 192


def shares(engine: Paged) -> dict[str, str]:
    """For every kind of step: milliseconds, and share of the floor."""
    found = {}
    for name, rows in cases(engine.block_size).items():
        theirs, ours = _least(products(engine, rows)), _least(lambda rows=rows: engine.runner.step(rows))  # type: ignore[misc]
        found[f"floor, {name}"] = f"{ours:.1f} ms against {theirs:.1f} ms: {theirs / ours:.0%}"
    return found


def cases(block_size: int) -> dict[str, list[Row]]:
    """Decode steps of 1, 8 and 32 rows at a context of 192, and a prefill of 512."""
    blocks = -(-CONTEXT // block_size)
    found = {
        f"decode of {rows}": [Row([5], CONTEXT - 1, range(at * blocks, (at + 1) * blocks), GREEDY) for at in range(rows)]
        for rows in (1, 8, 32)
    }
    return found | {"prefill of 512": [Row(list(range(512)), 0, range(512 // block_size), GREEDY)]}


def processor() -> str:
    """Its name and the paths of the C++ ops that it could run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return f"{name}: {', '.join(here())}"


def products(engine: Paged, rows: list[Row]) -> Callable[[], None]:
    """All products with weights of one step, with unpacked weights of the same shapes."""
    tokens, logits = sum(len(row.ids) for row in rows), len(rows)
    shape, dtype = engine.runner.model.shape, engine.runner.model.dtype
    attention, kv = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    sizes = [(attention + kv, shape.hidden), (shape.hidden, attention), (2 * shape.intermediate, shape.hidden)]
    weights = [torch.randn(size).to(dtype) for size in [*sizes, (shape.hidden, shape.intermediate)] * shape.layers]
    head, last = torch.randn(shape.vocab, shape.hidden).to(dtype), torch.randn(logits, shape.hidden).to(dtype)
    inputs = {width: torch.randn(tokens, width).to(dtype) for width in {weight.shape[1] for weight in weights}}

    def run() -> None:
        with torch.inference_mode():
            for weight in weights:
                F.linear(inputs[weight.shape[1]], weight)
            F.linear(last, head)

    return run


def _least(run: Callable[[], object]) -> float:
    """Milliseconds."""
    seconds = []
    for _ in range(RUNS):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    return min(seconds) * 1e3
