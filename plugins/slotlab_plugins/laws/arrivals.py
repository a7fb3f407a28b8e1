"""Arrival processes of unit mean rate: a law for the gaps, and a profile that bends time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotlab import UserError, require

Floats = NDArray[np.float64]

LAWS = ("poisson", "gamma", "weibull", "constant")
PROFILES = ("flat", "on_off", "ramp", "stages", "diurnal")


@dataclass
class Stage:
    """A stretch of time at one rate; durations and rates of the stages are relative to each other."""

    duration: float = 1.0
    rate: float = 1.0


@dataclass
class Arrivals:
    """Gaps by `law` (`cv`, their coefficient of variation, is for gamma and weibull), in a time that `profile` bends.

    Profiles: `flat`; `on_off` (nothing comes but in the first `duty` of each period); `ramp` (from 1 - `swing` to 1 + `swing`
    in one period, and then it stays); `stages` (one after the other in each period); `diurnal` (1 + `swing` times a sine).
    `period` is in mean gaps, that is, in expected requests; null: as long as the workload. The load divides all by its rate.
    """

    law: str = "poisson"
    cv: float = 1.0
    profile: str = "flat"
    period: float | None = None
    duty: float = 0.5
    swing: float = 0.5
    stages: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(self.law in LAWS, "law", self.law, f"one of {', '.join(LAWS)}")
        require(self.profile in PROFILES, "profile", self.profile, f"one of {', '.join(PROFILES)}")
        require(0.1 <= self.cv <= 100, "cv", self.cv, "from 0.1 to 100")
        require(self.period is None or 0 < self.period <= 1e9, "period", self.period, "greater than 0 and at most 1e+09")
        require(0 < self.duty <= 1, "duty", self.duty, "greater than 0 and at most 1")
        require(-1 < self.swing <= 1, "swing", self.swing, "greater than -1 and at most 1")
        if self.profile == "stages":
            check_stages(self.stages)

    def draw(self, rng: np.random.Generator, n: int, span: float, rate: float = 1.0) -> Floats:
        """The first `n` times at mean rate `rate`; a profile without a period of its own takes `span`."""
        return self.bend(np.cumsum(self.gaps(rng, n)) / rate, self.period or span)

    def gaps(self, rng: np.random.Generator, n: int) -> Floats:
        """`n` independent gaps of mean 1."""
        if self.law == "constant":
            return np.ones(n)
        if self.law == "gamma":
            return rng.gamma(self.cv**-2, self.cv**2, n)
        if self.law == "weibull":
            shape = weibull_shape(self.cv)
            return rng.weibull(shape, n) / math.gamma(1 + 1 / shape)
        return rng.exponential(size=n)

    def bend(self, times: Floats, period: float) -> Floats:
        """The inverse of the cumulative rate: unit-rate Poisson times become those of a Poisson process with this rate."""
        if self.profile == "flat":
            return times
        if self.profile == "ramp":
            return unramp(times, period, self.swing)
        knots, counts = self.cumulative()
        whole = np.floor(times / period)
        return period * (whole + np.interp(times / period - whole, counts, knots))

    def cumulative(self) -> tuple[Floats, Floats]:
        """Times and expected counts over one period, both from 0 to 1, with straight lines between them."""
        if self.profile == "diurnal":
            knots = np.linspace(0.0, 1.0, 4097)
            return knots, knots + self.swing * (1 - np.cos(2 * np.pi * knots)) / (2 * np.pi)
        stages = [Stage(self.duty, 1.0), Stage(1 - self.duty, 0.0)] if self.profile == "on_off" else self.stages
        durations = np.array([stage.duration for stage in stages])
        work = durations * [stage.rate for stage in stages]
        return ramped(durations), ramped(work)


def ramped(parts: Any) -> Floats:
    """Running sums from 0 to 1."""
    sums = np.concatenate([[0.0], np.cumsum(parts)])
    return np.asarray(sums / sums[-1])


def unramp(times: Floats, period: float, swing: float) -> Floats:
    """Inverse of the cumulative rate that goes linearly from 1 - `swing` to 1 + `swing` in `period`, and then stays."""
    low, high, slope = 1 - swing, 1 + swing, 2 * swing / period
    within = np.minimum(times, period)
    root = np.sqrt(np.maximum(low * low + 2 * slope * within, 0.0))
    inside = 2 * within / np.maximum(low + root, 1e-300)  # the stable form of (root - low) / slope
    return inside + np.maximum(times - period, 0.0) / high


def weibull_shape(cv: float) -> float:
    """The shape at which a Weibull law has this coefficient of variation, by bisection."""
    low, high = 0.1, 20.0
    for _ in range(60):
        shape = (low + high) / 2
        squared = math.exp(math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)) - 1
        low, high = (shape, high) if squared > cv * cv else (low, shape)
    return (low + high) / 2


def check_stages(stages: list[Stage]) -> None:
    """Refuse stages in which nothing would ever come."""
    if not any(stage.rate > 0 for stage in stages):
        raise UserError(f"stages={[stage.rate for stage in stages]}: must be one or more, not all of rate 0")
    for i, stage in enumerate(stages):
        require(0 < stage.duration <= 1e9, f"stages[{i}].duration", stage.duration, "greater than 0 and at most 1e+09")
        require(0 <= stage.rate <= 1e9, f"stages[{i}].rate", stage.rate, "at least 0 and at most 1e+09")
