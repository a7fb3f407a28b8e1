"""The figures in which two runs are compared, each with the interval of its difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from slotlab.record.metrics import request_metrics
from slotlab.record.percentiles import Floats
from slotlab.record.slo import SLO
from slotlab.record.statistics import Interval, Outcome, Statistic, describe, mean, pair, paired_bootstrap

Bootstrap = Callable[..., Interval]

LATENCIES = ("ttft", "tpot", "e2e")
OF_REPEATS = ("output_throughput", "goodput", "fairness_gap", "jain_index")  # one value per load point and repeat
MORE_IS_BETTER = ("output_throughput", "goodput", "goodput_fraction", "jain_index")
FEWEST_P99 = 100  # pairs: of fewer, none lies beyond the 99th percentile


@dataclass(frozen=True)
class Measured:
    """A run as a comparison sees it: its table `requests`, its SLO and the weights of its tenants."""

    requests: pd.DataFrame
    slo: SLO
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Contrast:
    """Run b against run a in one figure: the mean over the load points of each point's value, or that of one point.

    The interval (95 %) is infinite where there is too little to say; `lack` then says of what.
    """

    metric: str  # a key of METRICS
    point: int | None  # None: all of them
    a: float
    b: float
    interval: Interval
    lack: str = ""

    def outcome(self, noise: float = 0.0) -> Outcome:
        """How b did; a difference within `noise` (what runs of one composition differ by) is none."""
        span = self.interval
        if abs(span.difference) <= noise:
            return "no difference"
        return describe(Interval(-span.difference, -span.high, -span.low) if self.metric in MORE_IS_BETTER else span)

    @property
    def reach(self) -> float:
        """The largest difference that the interval holds, either way; the difference itself where it is infinite."""
        ends = max(abs(self.interval.low), abs(self.interval.high))
        return ends if math.isfinite(ends) else abs(self.interval.difference)


def contrasts(a: Measured, b: Measured, *, seed: int = 0, resamples: int = 2000) -> list[Contrast]:
    """All figures that are defined in both runs: over all load points, then for each where there are several.

    Latencies and `goodput_fraction` are paired by request, with the block bootstrap of `paired_bootstrap`; what only a
    whole serving has (throughput, goodput, fairness) is paired by repeat, and needs several. Raises UserError if the
    runs did not serve the same requests.
    """
    both = pair(a.requests, b.requests)
    both = both.assign(good_a=_met(both, a.slo, "a"), good_b=_met(both, b.slo, "b"))
    repeats = _of_repeats(a, b)
    bootstrap = partial(paired_bootstrap, seed=seed, resamples=resamples)
    points = [int(point) for point in both["point"].unique()]
    found: list[Contrast] = []
    for point in [None, *(points if len(points) > 1 else [])]:
        rows = both if point is None else both[both["point"] == point]
        some = repeats if point is None else repeats[repeats["point"] == point]
        found += _of_requests(rows, point, bootstrap)
        found += _of_servings(some, point, bootstrap)
    return found


def _met(both: pd.DataFrame, slo: SLO, side: str) -> Floats:
    return slo.met({name: both[f"{name}_{side}"].to_numpy(dtype=float) for name in LATENCIES}).astype(float)


def _of_requests(both: pd.DataFrame, point: int | None, bootstrap: Bootstrap) -> Iterator[Contrast]:
    for name in (*LATENCIES, "good"):
        columns = [f"{name}_a", f"{name}_b"]
        pairs = both.dropna(subset=columns if name == "good" else [*columns, "e2e_a", "e2e_b"])
        if not len(pairs):
            continue
        sizes = pairs.groupby("point").size().to_list()
        paired = partial(bootstrap, streams=pairs.groupby(["point", "repeat"]).ngroup().to_numpy())
        metric, lack = ("goodput_fraction" if name == "good" else f"{name}_mean"), "too few requests"
        yield _contrast(metric, point, pairs[columns], _over_points(mean, sizes), paired, lack)
        if name != "good":
            few = min(sizes) < FEWEST_P99
            lack = f"fewer than {FEWEST_P99} requests per load point" if few else lack
            yield _contrast(f"{name}_p99", point, pairs[columns], _over_points(_p99, sizes), None if few else paired, lack)


def _of_repeats(a: Measured, b: Measured) -> pd.DataFrame:
    """One row per load point and repeat: `<figure>_a` and `<figure>_b`, NaN where undefined."""
    tables = []
    for run in (a, b):
        rows = []
        for place, requests in run.requests.groupby(["point", "repeat"]):
            figures = request_metrics(requests, slo=run.slo, weights=run.weights)
            label = dict(zip(("point", "repeat"), place, strict=True))
            rows.append({**label, **{name: figures.get(name, math.nan) for name in OF_REPEATS}})
        tables.append(pd.DataFrame(rows))
    return tables[0].merge(tables[1], on=["point", "repeat"], suffixes=("_a", "_b"))


def _of_servings(repeats: pd.DataFrame, point: int | None, bootstrap: Bootstrap) -> Iterator[Contrast]:
    for metric in OF_REPEATS:
        columns = [f"{metric}_a", f"{metric}_b"]
        pairs = repeats.dropna(subset=columns).sort_values(["point", "repeat"])
        if len(pairs):
            statistic = _over_points(mean, pairs.groupby("point").size().to_list())
            paired = partial(bootstrap, streams=pairs["point"].to_numpy(), block=1)
            yield _contrast(metric, point, pairs[columns], statistic, paired, "too few repeats")


def _p99(values: Floats) -> Floats:
    return np.asarray(np.percentile(values, 99, axis=-1))


def _over_points(statistic: Statistic, sizes: Sequence[int]) -> Statistic:
    """The mean over load points, which stand one after the other with so many values each."""
    borders = np.cumsum(sizes)[:-1]
    return lambda values: np.mean([statistic(part) for part in np.split(values, borders, axis=-1)], axis=0)


def _contrast(
    metric: str, point: int | None, pairs: pd.DataFrame, statistic: Statistic, paired: Bootstrap | None, lack: str
) -> Contrast:
    a, b = pairs.to_numpy(dtype=float).T.copy()
    before, after = float(statistic(a)), float(statistic(b))
    if np.array_equal(a, b):
        interval = Interval(0.0, 0.0, 0.0)  # the same bytes need no statistics, however few
    else:
        interval = paired(a, b, statistic=statistic) if paired else Interval(after - before, -math.inf, math.inf)
    return Contrast(metric, point, before, after, interval, "" if math.isfinite(interval.high) else lack)
