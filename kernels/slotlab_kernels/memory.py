"""How much memory a model runner takes, how many blocks fit beside it, and what is said where something does not fit."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.kv_cache import bytes_per_block
from slotlab_kernels.sampling import Sampling
from slotlab_kernels.shape import LlamaShape

if TYPE_CHECKING:
    from slotlab_kernels.runner import ModelRunner

KNOBS = {
    "cuda": "lower engine.gpu_memory_utilization, batching.max_num_batched_tokens or engine.num_blocks",
    "cpu": "lower engine.num_blocks or batching.max_num_batched_tokens",
}
WORST = Sampling(temperature=1.0, top_k=2, top_p=0.5)
"""Drawing in the way that takes the most memory."""


class OutOfMemory(ValueError):
    """Something does not fit into memory; the message is one line that says what, and which options to change."""


def out_of_memory(what: str, device: torch.device, why: str) -> OutOfMemory:
    """The error with its knobs."""
    return OutOfMemory(f"{what} does not fit into the memory of {device.type} ({why}); {KNOBS[device.type]}")


@contextmanager
def memory_errors(what: str, device: torch.device) -> Iterator[None]:
    """Turns what torch raises when memory is short into an OutOfMemory, and gives back what torch holds unused."""
    why = None
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        why = str(error).partition("\n")[0]
    if why is not None:  # not inside of except, where the traceback keeps the tensors of its frames alive
        if device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
        raise out_of_memory(what, device, why)


def _is_memory(error: Exception) -> bool:
    """Whether it is about memory: on a CPU torch raises a RuntimeError that only its words tell apart."""
    words = ("not enough memory", "DefaultCPUAllocator", "out of memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)


def check_cache(shape: LlamaShape, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype) -> None:
    """OutOfMemory for a KV cache larger than the machine: Linux may promise the memory, and end the process that uses it."""
    size, there = num_blocks * bytes_per_block(shape, block_size, dtype), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.type == "cpu" and size > there:
        why = f"{num_blocks} blocks of {block_size} tokens are {size / 1e9:.1f} GB, the machine has {there / 1e9:.1f} GB"
        raise out_of_memory("the KV cache", device, why)


class Gauge(Protocol):
    """Measures the memory of a device, in bytes."""

    total: int

    def most(self, work: Callable[[], None]) -> int:
        """Does this work; the most that was in use by anybody on the device while it was done."""


class CudaGauge:
    """The memory of a CUDA device: what torch reserves at the most, and all that others and CUDA itself have taken."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.total = torch.cuda.mem_get_info(device)[1]

    def most(self, work: Callable[[], None]) -> int:
        torch.cuda.synchronize(self._device)
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        work()
        torch.cuda.synchronize(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        others = total - free - torch.cuda.memory_reserved(self._device)
        return others + torch.cuda.max_memory_reserved(self._device)


def fit_num_blocks(
    build: Callable[[int], ModelRunner], gauge: Gauge, utilization: float, max_tokens: int, max_rows: int, block_size: int
) -> int:
    """How many blocks fit into the share `utilization` of a device's memory, beside everything else.

    `build` makes the runner with so many blocks, graphs and all. Here it gets a few, is put through the largest steps of
    `max_tokens` and `max_rows` (see `rehearse`), and is thrown away. OutOfMemory if not even one block fits.
    """
    few = rehearsal_blocks(max_tokens, max_rows, block_size)
    per_block = 0

    def trial() -> None:
        nonlocal per_block
        runner = build(few)
        rehearse(runner, max_tokens, max_rows)
        per_block = runner.cache.all.nbytes // few

    beside = gauge.most(trial) - few * per_block
    blocks = (int(gauge.total * utilization) - beside) // per_block
    if blocks < 1:
        raise OutOfMemory(
            f"no block of the KV cache fits: {utilization:g} of {gauge.total / 1e9:.1f} GB, and weights, graphs and a step of "
            f"{max_tokens} tokens take {beside / 1e9:.1f} GB; raise engine.gpu_memory_utilization or lower "
            "batching.max_num_batched_tokens"
        )
    return blocks


def rehearsal_blocks(max_tokens: int, max_rows: int, block_size: int) -> int:
    """As many as `rehearse` writes to."""
    return -(-max_tokens // block_size) + max_rows


def rehearse(runner: ModelRunner, max_tokens: int, max_rows: int) -> None:
    """The largest steps: `max_tokens` of prompts in as many rows as may be, and `max_rows` decodes of the longest context.

    They compile what is compiled at first use, too. Afterwards the cache is empty.
    """
    size, longest = runner.limits.block_size, runner.limits.max_context
    count = min(max_rows, max_tokens)
    length = min(-(-max_tokens // count), longest)
    whole = [length] * (max_tokens // length) + [max_tokens % length] * (max_tokens % length > 0)
    free = iter(range(runner.limits.num_blocks))
    runner.step([Row([0] * n, 0, [next(free) for _ in range(-(-n // size))], WORST) for n in whole[:count]])
    before = [0] * (-(-longest // size) - 1)
    runner.step([Row([0], longest - 1, [*before, own], WORST) for own in range(max_rows)])
    runner.reset()
