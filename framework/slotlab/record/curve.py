"""From repeats to a point, from points to the scalars of a curve, and whether a point kept up with its load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from slotlab.record.intervals import empty_share, mean_inside
from slotlab.record.percentiles import Floats

Verdict = Literal["stable", "saturated", "undetermined"]

FEWEST = 30  # requests that a verdict needs
RAMP = 0.2  # share of the arrival window in which the system fills up
SLICES = 8
T_975 = 2.447  # quantile of Student's t with SLICES - 2 degrees of freedom


def aggregate(repeats: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over the repeats of one point; with more than one also `<key>_lo` and `<key>_hi`, the extremes.

    Extremes, for they assume nothing and never leave the possible range, as a t-interval of three repeats does. A
    key that one repeat lacks is left out: a mean over the repeats in which it happened to be defined would flatter.
    """
    point: dict[str, float] = {}
    for key in repeats[0] if repeats else ():
        values = [repeat[key] for repeat in repeats if key in repeat]
        if len(values) < len(repeats):
            continue
        point[key] = sum(values) / len(values)
        if len(values) > 1:
            point[f"{key}_lo"], point[f"{key}_hi"] = min(values), max(values)
    return point


def verdict(requests: pd.DataFrame) -> Verdict:
    """Whether an open-loop point kept up with its arrivals; several repeats must agree, else it is undetermined.

    The backlog is the number of requests in the system. Over the last 80 % of the arrival window its mean in 8 equal
    slices is fitted by a line; `drift` is the slope over the arrival rate: the share of arrivals that is left
    behind, 1 - capacity / load when overloaded. Two yardsticks: its t-error, and the drift's standard deviation in a
    queue at exactly full load, sqrt(2.4 / n) (a random walk with variance 2 per arrival; Poisson-like). The queue is
    those who wait for their first start.

    saturated: drift exceeds both yardsticks, and the queue is empty in at most a quarter of the window's second
    half. stable: drift is within half the second yardstick, and either the queue is empty in more than that quarter,
    or the drift is below 5 % even at the upper end of its 95 % t-interval. Else, and with fewer than 30 requests:
    undetermined. On M/M/1 and M/M/16 queues with 500 requests it calls 97 % of points at 80 % load stable and none
    saturated; at 120 % load 85 % saturated and 1 % stable; near full load it often cannot say.
    """
    found = {_verdict(repeat) for _, repeat in requests.groupby("repeat")}
    return found.pop() if len(found) == 1 else "undetermined"


def _verdict(requests: pd.DataFrame) -> Verdict:
    stayed = requests[requests["status"] != "rejected"]
    arrival = stayed["scheduled_arrival"].to_numpy(dtype=float)
    started, finish = (stayed[name].to_numpy(dtype=float, na_value=np.inf) for name in ("started", "finish"))
    if len(arrival) < FEWEST or arrival.max() == arrival.min():
        return "undetermined"
    begin, end = arrival.min(), arrival.max()
    edges = np.linspace(begin + RAMP * (end - begin), end, SLICES + 1)
    slope, error = _line(edges, mean_inside(arrival, finish, edges))
    drift, error = (value * (end - begin) / len(arrival) for value in (slope, T_975 * error))
    critical = np.sqrt(2.4 / (len(arrival) * (1 - RAMP)))
    empties = empty_share(arrival, started, (begin + end) / 2, end) > 0.25
    if drift > max(error, critical) and not empties:
        return "saturated"
    if drift < critical / 2 and (empties or drift + error < 0.05):
        return "stable"
    return "undetermined"


def _line(edges: Floats, means: Floats) -> tuple[float, float]:
    """Slope of the least-squares line through the means of equal slices, and its standard error."""
    middle = (edges[:-1] + edges[1:]) / 2
    x, y = middle - middle.mean(), means - means.mean()
    slope = (x @ y) / (x @ x)
    rest = y - slope * x
    return float(slope), float(np.sqrt(rest @ rest / (len(x) - 2) / (x @ x)))


def curve_scalars(points: Sequence[Mapping[str, float]], verdicts: Sequence[Verdict], ref_index: int) -> dict[str, float]:
    """One number each for the whole curve; undefined ones are left out.

    points: aggregated figures from the lowest load to the highest, with one verdict each. ref_index: the point at
    `load.ref_rate`. `makespan` is the last point's. A curve of one point, which often has no rate, shows that
    point's figures.
    """
    if not points:
        return {}
    stable = [point for point, found in zip(points, verdicts, strict=True) if found == "stable"]
    best = {
        "max_throughput": _values(points, "output_throughput"),
        "goodput_at_slo": _values(points, "goodput"),
        "knee_rate": _values(stable, "offered_rate"),
        "ttft_p99_at_ref_rate": _values([points[ref_index]], "ttft_p99"),
        "makespan": _values(points[-1:], "makespan"),
    }
    if len(points) == 1:
        best |= {key: _values(points, key) for key in ("e2e_mean", "slot_utilisation", "batch_efficiency")}
    return {key: max(values) for key, values in best.items() if values}


def _values(points: Sequence[Mapping[str, float]], key: str) -> list[float]:
    return [point[key] for point in points if key in point]
