"""Percentiles, and how far they can be trusted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]

PERCENTILES = (50, 90, 95, 99)


def percentile(values: Floats, percent: float) -> float:
    """The percentile of sorted `values` (one at least), by linear interpolation between order statistics.

    Hyndman and Fan's type 7, numpy's `linear`; but infinite values, which stand for requests that failed, are
    allowed.
    """
    place = (len(values) - 1) * percent / 100
    low = math.floor(place)
    below, above = float(values[low]), float(values[math.ceil(place)])
    return below if above == below else below + (above - below) * (place - low)


def percentile_bounds(values: Floats, percent: float, confidence: float = 0.95) -> tuple[float, float]:
    """Two of the sorted `values` that bracket the true percentile with at least this confidence, whatever the distribution.

    The number of values below the true percentile is binomial, so the ranks follow from its quantiles (David and
    Nagaraja, Order Statistics). Values are taken as independent, which latencies of one queue are not: read the
    bounds as the least uncertainty. Too few values leave a side open: p99 has an upper bound from 368 values on;
    below, it is infinite.
    """
    n, tail = len(values), (1 - confidence) / 2
    cumulative = np.cumsum(binomial(n, percent / 100))
    low = int(np.searchsorted(cumulative, tail))  # ranks count from 1: P(fewer than `low` values below) < tail
    high = int(np.searchsorted(cumulative, 1 - tail)) + 1
    return (float(values[low - 1]) if low else -math.inf), (float(values[high - 1]) if high <= n else math.inf)


def binomial(n: int, p: float) -> Floats:
    """P(k successes in n trials) for k = 0 .. n, with 0 < p < 1."""
    k = np.arange(1, n + 1)
    ratios = np.log((n - k + 1) / k) + math.log(p / (1 - p))
    logs = n * math.log(1 - p) + np.concatenate([[0.0], np.cumsum(ratios)])
    mass: Floats = np.exp(logs)
    return mass


def summary(name: str, values: NDArray[Any]) -> dict[str, float]:
    """`<name>_mean` and `<name>_p<k>` of `values`; nothing where there are none."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    tails = {f"{name}_p{percent}": percentile(ordered, percent) for percent in PERCENTILES}
    return {f"{name}_mean": float(values.mean()), **tails}
