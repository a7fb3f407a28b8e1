"""What was found, the time that work takes, and what the device can do at best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
from sizes import Sizes

FLUSH = 256 << 20  # bytes that are written before each timed call, so that nothing it reads is left in a cache


@dataclass(frozen=True)
class Finding:
    """One measured figure. `floor`: the best that the device allows, in the same unit. `ok`: it meets its target, or is right."""

    part: str
    name: str
    value: float
    unit: str
    floor: float | None = None
    share: float | None = None
    target: float | None = None
    ok: bool | None = None


def timed(part: str, name: str, seconds: float, least: float, target: float | None = None) -> Finding:
    """A duration beside the least that it could be, in microseconds."""
    share = least / seconds
    return Finding(part, name, seconds * 1e6, "us", least * 1e6, share, target, None if target is None else share >= target)


def rated(part: str, name: str, rate: float, most: float, unit: str, target: float | None = None) -> Finding:
    """A rate beside the most that it could be."""
    share = rate / most
    return Finding(part, name, rate, unit, most, share, target, None if target is None else share >= target)


def checked(name: str, worst: float, allowed: float) -> Finding:
    """An error beside what is allowed; NaN is never right."""
    return Finding("7 correctness", name, worst, "error", allowed, ok=worst <= allowed)


@dataclass(frozen=True)
class Ceilings:
    """Measured in the same run: bytes per second copied (read and written) and only read, and operations per second."""

    copy: float
    read: float
    flops: float

    @property
    def bandwidth(self) -> float:
        """The better of the two: what a floor is computed with."""
        return max(self.copy, self.read)


@dataclass
class Timer:
    """The median time of work that is repeated on a device, each time with cold caches."""

    device: torch.device
    repeats: int
    _flush: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        self._flush = torch.empty(FLUSH if self.device.type == "cuda" else 1, dtype=torch.int8, device=self.device)

    def seconds(self, work: Callable[[], object]) -> float:
        """Of one call; the first, which may compile, does not count."""
        work()
        return median(self._cuda(work) if self.device.type == "cuda" else self._cpu(work) for _ in range(self.repeats))

    def _cpu(self, work: Callable[[], object]) -> float:
        start = perf_counter()
        work()
        return perf_counter() - start

    def _cuda(self, work: Callable[[], object]) -> float:
        """By events: the device is still busy with the flush when the work is handed over, so the host's time does not count."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def sync(self) -> None:
        """Waits for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@dataclass
class Bench:
    """What all parts share. `ceilings` are those of part 1."""

    device: torch.device
    dtype: torch.dtype
    sizes: Sizes
    timer: Timer
    ceilings: Ceilings = field(init=False)


def measure_ceilings(bench: Bench) -> list[Finding]:
    """Part 1: a copy, a sum, a matrix product; sets `bench.ceilings`."""
    sizes, like = bench.sizes, {"device": bench.device, "dtype": bench.dtype}
    source = torch.ones(sizes.copy_bytes // bench.dtype.itemsize // 2, **like)
    target, words = torch.empty_like(source), source.view(torch.int32)
    copy = 2 * source.nbytes / bench.timer.seconds(lambda: target.copy_(source))
    read = source.nbytes / bench.timer.seconds(lambda: words.amax())
    n = sizes.matmul
    a, b = (torch.randn(n, n, **like) for _ in range(2))
    flops = 2 * n**3 / bench.timer.seconds(lambda: a @ b)
    bench.ceilings = Ceilings(copy, read, flops)
    part = "1 ceilings"
    return [
        Finding(part, f"copy of {source.nbytes / 1e9:.3g} GB", copy / 1e9, "GB/s"),
        Finding(part, f"maximum of {source.nbytes / 1e9:.3g} GB", read / 1e9, "GB/s"),
        Finding(part, f"matrix product {n}^3", flops / 1e12, "TFLOP/s"),
    ]
