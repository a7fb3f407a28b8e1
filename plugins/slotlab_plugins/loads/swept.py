"""Loads that are given as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slotlab import Load, Point, UserError, require
from slotlab.limits import LATEST, MOST_REPEATS, RATES
from slotlab.names import brief
from slotlab.workload import Bench


def check(name: str, values: Sequence[float]) -> None:
    """Refuse a sweep without points, with more of them than anybody waits for, and points that nobody can serve."""
    low, high = RATES
    if not 0 < len(values) <= MOST_REPEATS or not all(low <= value <= high for value in values):
        raise UserError(f"{name}={brief(list(values))}: must be 1 to {MOST_REPEATS} numbers from {low:g} to {high:g}")


@dataclass
class Rates(Load):
    """Open loop at these rates, in requests per second, whatever becomes of the answers."""

    rates: list[float] = field(default_factory=lambda: [16.0, 32.0, 64.0, 128.0])

    def __post_init__(self) -> None:
        super().__post_init__()
        check("rates", self.rates)

    def points(self, bench: Bench) -> Sequence[Point]:
        return [Point(rate=rate) for rate in sorted(self.rates)]


@dataclass
class Multiples(Load):
    """Open loop at multiples of the engine's capacity, which is measured once per sweep and kept in its folder."""

    multiples: list[float] = field(default_factory=lambda: [0.5, 0.75, 1.0, 1.25, 1.5])

    def __post_init__(self) -> None:
        super().__post_init__()
        check("multiples", self.multiples)

    def points(self, bench: Bench) -> Sequence[Point]:
        capacity = bench.capacity()
        return [Point(rate=capacity * multiple) for multiple in sorted(self.multiples)]


@dataclass
class Concurrencies(Load):
    """Closed loop: this many clients, each of which waits for its answer, and then `think` seconds on average (exponential)."""

    concurrencies: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16, 32])
    think: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check("concurrencies", self.concurrencies)
        require(0 <= self.think <= LATEST, "think", self.think, f"at least 0 and at most {LATEST:g}")

    def points(self, bench: Bench) -> Sequence[Point]:
        return [Point(concurrency=clients, think=self.think) for clients in sorted(self.concurrencies)]


@dataclass
class Native(Load):
    """One point, at the workload's own times."""

    def points(self, bench: Bench) -> Sequence[Point]:
        return [Point()]


CHOICES = {"rates": Rates, "multiples": Multiples, "concurrencies": Concurrencies, "native": Native}
