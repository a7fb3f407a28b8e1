"""A load point second by second: how deep the queue was, how full the engine, who was served."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from slotlab.record.fairness import service_events
from slotlab.record.percentiles import Floats
from slotlab.record.schema import SERIES

MOST = 600  # intervals of a series: longer runs have intervals of 2, 4, 8, ... seconds


def series_table(point: int, repeat: int, requests: pd.DataFrame, steps: pd.DataFrame) -> pa.Table:
    """One row per interval and series, from the tables `requests` and `steps` of one load point and repeat.

    `queue_depth` (arrived, but not started for the first time), `running` and `kv_used` (blocks) are time averages,
    `step_tokens` the mean over the steps that end in the interval, `service_<tenant>` what the tenant got in it, per second.
    """
    edges = intervals(requests, steps)
    columns: dict[str, list[Any]] = {name: [] for name in SERIES.names}
    for name, values in _series(requests, steps, edges) if len(edges) > 1 else ():
        known = ~np.isnan(values)
        count = int(known.sum())
        columns["point"] += [point] * count
        columns["repeat"] += [repeat] * count
        columns["second"] += edges[:-1][known].tolist()
        columns["name"] += [name] * count
        columns["value"] += values[known].tolist()
    return pa.table(columns, schema=SERIES)


def by_name(table: pa.Table) -> dict[str, dict[int, float]]:
    """The series of one load point and repeat: the value at each whole second."""
    found: dict[str, dict[int, float]] = {}
    for name, second, value in zip(*(table[key].to_pylist() for key in ("name", "second", "value")), strict=True):
        found.setdefault(name, {})[int(second)] = value
    return found


def intervals(requests: pd.DataFrame, steps: pd.DataFrame) -> Floats:
    """Edges of intervals of one second, or a power of two of them, from the first arrival's to the end of the last step."""
    if not len(steps):
        return np.empty(0)
    begin = math.floor(requests["scheduled_arrival"].min())
    end = float((steps["start"] + steps["duration"]).iloc[-1])
    width = 2 ** max(0, math.ceil(math.log2(max(end - begin, 1) / MOST)))
    return np.append(np.arange(begin, end, width, dtype=float), end)


def _series(requests: pd.DataFrame, steps: pd.DataFrame, edges: Floats) -> Iterator[tuple[str, Floats]]:
    widths, begin = np.diff(edges), steps["start"].to_numpy()
    end = begin + steps["duration"].to_numpy()
    stayed = requests[requests["status"] != "rejected"]
    arrival, started = (stayed[name].to_numpy(dtype=float, na_value=math.inf) for name in ("scheduled_arrival", "started"))
    yield "queue_depth", area(arrival, started, np.ones(len(stayed)), edges) / widths
    for name in ("running", "kv_used"):
        yield name, area(begin, end, steps[name].to_numpy(), edges) / widths
    tokens = steps["decode_tokens"] + steps["prefill_tokens"] + steps["recomputed_tokens"]
    count = np.histogram(end, edges)[0]
    computed = np.histogram(end, edges, weights=tokens)[0]
    yield "step_tokens", np.divide(computed, count, out=np.full(len(widths), np.nan), where=count > 0)
    times, amounts, rows = service_events(requests)
    owner = requests["tenant"].to_numpy()[rows]
    for tenant in sorted(set(requests["tenant"])):
        mine = owner == tenant
        yield f"service_{tenant}", np.histogram(times[mine], edges, weights=amounts[mine])[0] / widths


def area(entered: Floats, left: Floats, weights: Floats, edges: Floats) -> Floats:
    """Integral, between each two neighbours of `edges`, of the summed weights of those who are inside at a time."""
    inside: Floats = np.diff(_ramps(entered, weights, edges) - _ramps(left, weights, edges))
    return np.maximum(inside, 0.0)  # differences of large sums may be a rounding error below


def _ramps(times: Floats, weights: Floats, edges: Floats) -> Floats:
    """Sum of weight x (edge - time) over the times before each edge."""
    order = np.argsort(times, kind="stable")
    times, weights = times[order], weights[order]
    times = np.minimum(times, edges[-1])  # nobody leaves later, as far as these intervals go
    count = np.searchsorted(times, edges)
    total, moment = (np.append(0.0, np.cumsum(values)) for values in (weights, weights * times))
    ramps: Floats = edges * total[count] - moment[count]
    return ramps
