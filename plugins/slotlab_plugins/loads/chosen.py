"""Loads that look before they choose. What they choose is chosen once per sweep, so that its runs stay comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slotlab import Load, Point, UserError, require
from slotlab.errors import nearest
from slotlab.limits import MOST_REPEATS, MOST_REQUESTS, MOST_TIMES
from slotlab.record.means import half_width
from slotlab.workload import Bench
from slotlab_plugins.loads.swept import Multiples, check


@dataclass
class Auto(Load):
    """Open loop at `num_points` rates around the knee, closest beside it, from `low` to `high` times the knee.

    The knee is found by saturation, with bursts that grow until it is known to within `accuracy` (half the width of a 95 %
    interval, relative) or a burst has `max_requests` requests.
    """

    num_points: int = 7
    low: float = 0.3
    high: float = 1.4
    accuracy: float = 0.02
    max_requests: int = 2048

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.num_points <= MOST_REPEATS, "num_points", self.num_points, f"at least 1 and at most {MOST_REPEATS}")
        require(0 < self.low <= 1, "low", self.low, "greater than 0, at most 1")
        require(1 <= self.high <= MOST_TIMES, "high", self.high, f"at least 1 and at most {MOST_TIMES:g}")
        require(0 < self.accuracy < 1, "accuracy", self.accuracy, "greater than 0, below 1")
        require(
            1 <= self.max_requests <= MOST_REQUESTS, "max_requests", self.max_requests, f"at least 1 and at most {MOST_REQUESTS}"
        )

    def points(self, bench: Bench) -> Sequence[Point]:
        knee = bench.knee(self.accuracy, self.max_requests)
        return [Point(rate=knee * multiple) for multiple in spread(self.num_points, self.low, self.high)]


def spread(n: int, low: float, high: float) -> list[float]:
    """`n` numbers from `low` <= 1 to `high` >= 1 that lie closest around 1; quadratic on either side."""
    places = [2 * i / (n - 1) - 1 for i in range(n)] if n > 1 else [0.0]
    return [1 + (high - 1) * x * x if x > 0 else 1 - (1 - low) * x * x for x in places]


@dataclass
class UntilCI(Multiples):
    """As `multiples`, or at `rates`; each point is repeated until the 95 % interval of the mean of `metric` is narrow enough.

    Enough: half the interval is at most `width` times the mean, after `repeats` repeats at least and `max_repeats` at most. How
    often a point is repeated is decided by the first job of a sweep.
    """

    repeats: int = 3
    rates: list[float] | None = None
    metric: str = "ttft_mean"
    width: float = 0.05
    max_repeats: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.repeats >= 3, "repeats", self.repeats, "at least 3, for an interval")
        fits = self.repeats <= self.max_repeats <= MOST_REPEATS
        require(fits, "max_repeats", self.max_repeats, f"at least repeats={self.repeats} and at most {MOST_REPEATS}")
        require(0 < self.width <= MOST_TIMES, "width", self.width, f"greater than 0 and at most {MOST_TIMES:g}")
        if self.rates is not None:
            check("rates", self.rates)

    @property
    def draws(self) -> int:
        return self.max_repeats

    def points(self, bench: Bench) -> Sequence[Point]:
        return super().points(bench) if self.rates is None else [Point(rate=rate) for rate in sorted(self.rates)]

    def enough(self, figures: Sequence[Mapping[str, float]]) -> bool:
        if len(figures) < self.repeats:
            return False
        if not any(self.metric in repeat for repeat in figures):
            known = nearest(self.metric, (name for name in figures[-1] if not name.startswith("tenant_")))
            raise UserError(f"load.metric={self.metric}: must be a figure of every point; {known}")
        values = [repeat[self.metric] for repeat in figures if self.metric in repeat]
        return len(figures) >= self.max_repeats or half_width(values) <= self.width

    def remark(self, figures: Sequence[Mapping[str, float]]) -> str | None:
        found = half_width([repeat[self.metric] for repeat in figures if self.metric in repeat])
        return f"{self.metric} is known to {found:.1%} only, after {len(figures)} repeats" if found > self.width else None


CHOICES = {"auto": Auto, "until_ci": UntilCI}
