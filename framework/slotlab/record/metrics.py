"""The figures of one load point: this module and those it imports are the only place with a formula.

What cannot be said is left out: an undefined figure has no key, and is never 0 or NaN. `METRICS` says what each key
means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slotlab.record.conservation import conserved
from slotlab.record.curve import aggregate, curve_scalars, verdict
from slotlab.record.decomposition import decompose
from slotlab.record.definitions import METRICS
from slotlab.record.fairness import tenant_metrics
from slotlab.record.intervals import mean_inside, most_inside
from slotlab.record.latency import LATENCIES, request_latencies, token_gaps
from slotlab.record.percentiles import Floats, percentile_bounds, summary
from slotlab.record.schema import METRICS_VERSION
from slotlab.record.slo import SLO

__all__ = [
    "METRICS",
    "METRICS_VERSION",
    "SLO",
    "aggregate",
    "curve_scalars",
    "percentile_bounds",
    "point_metrics",
    "request_latencies",
    "request_metrics",
    "verdict",
]

Figures = Iterator[tuple[str, float | None]]


def point_metrics(
    requests: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    max_num_seqs: int,
    num_blocks: int,
    slo: SLO,
    weights: Mapping[str, float],
) -> dict[str, float]:
    """All figures of one load point and repeat, from its rows of the tables `requests` and `steps`.

    max_num_seqs: slots of the engine. num_blocks: size of its KV pool. weights: fair share per tenant, 1 where
    missing. Asserts that every row is possible (0 <= queueing <= ttft <= e2e), and what `conserved` says.
    """
    found = request_metrics(requests, slo=slo, weights=weights)
    conserved(requests, steps)
    figures = [
        *_engine(steps, found.get("makespan"), max_num_seqs, num_blocks),
        *_work(requests, steps),
        *_parts(requests, steps),
    ]
    return {**found, **_defined(figures)}


def request_metrics(requests: pd.DataFrame, *, slo: SLO, weights: Mapping[str, float]) -> dict[str, float]:
    """The figures of `point_metrics` that need no steps."""
    latency = request_latencies(requests)
    begin, end = observed(requests)
    span = end - begin if end > begin else None
    return _defined(
        [
            *_counts(requests),
            *_rates(requests, span),
            *_latencies(requests, latency),
            *_goodput(slo.met(latency), span),
            *_crowds(requests, begin, end),
            *tenant_metrics(requests, latency, weights, span),
        ]
    )


def _defined(figures: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    defined = {key: float(value) for key, value in figures if value is not None and value != math.inf}
    assert not any(map(math.isnan, defined.values())), f"a figure is NaN: {defined}"
    return defined


def observed(requests: pd.DataFrame) -> tuple[float, float]:
    """The span of a load point: first scheduled arrival, last output token of anybody; NaN without one."""
    last = [times[-1] for times in requests["token_times"] if len(times)]
    return float(requests["scheduled_arrival"].min()), float(max(last, default=math.nan))


def ratio(part: float, whole: float | None) -> float | None:
    """part / whole; None where that is undefined."""
    return part / whole if whole else None


def _counts(requests: pd.DataFrame) -> Figures:
    status = requests["status"]
    yield "offered", len(requests)
    for name in ("finished", "rejected", "aborted"):
        yield name, (status == name).sum()


def _rates(requests: pd.DataFrame, span: float | None) -> Figures:
    arrival, submitted = requests["scheduled_arrival"], requests["submitted"]
    emitted = requests["output_tokens"].sum()
    prompts = requests["prompt_tokens"].where(requests["first_token"].notna(), 0).sum()
    yield "makespan", span
    yield "request_throughput", ratio((requests["status"] == "finished").sum(), span)
    yield "output_throughput", ratio(emitted, span)
    yield "total_throughput", ratio(emitted + prompts, span)
    if len(requests):
        yield "offered_rate", ratio(len(requests) - 1, arrival.max() - arrival.min())
        yield "achieved_rate", ratio(len(requests) - 1, submitted.max() - submitted.min())
        yield "send_lag_mean", (submitted - arrival).mean()
        yield "send_lag_max", (submitted - arrival).max()


def _latencies(requests: pd.DataFrame, latency: Mapping[str, Floats]) -> Figures:
    done = (requests["status"] == "finished").to_numpy()
    values = {name: latency[name][done] for name in LATENCIES}
    for name in ("tpot", "slowdown"):
        values[name] = values[name][~np.isnan(values[name])]
    values["itl"] = token_gaps(requests[done])
    for name in values:
        yield from summary(name, values[name]).items()
    yield "tpot_undefined", len(values["e2e"]) - len(values["tpot"])
    for name in ("ttft", "e2e"):
        adjusted = summary(f"adj_{name}", np.where(done, latency[name], math.inf))
        yield from ((key, value) for key, value in adjusted.items() if not key.endswith("_mean"))


def _goodput(met: NDArray[np.bool_], span: float | None) -> Figures:
    yield "goodput", ratio(met.sum(), span)
    yield "goodput_fraction", ratio(met.sum(), len(met))


def _crowds(requests: pd.DataFrame, begin: float, end: float) -> Figures:
    """Who is in the system and in its queue, from the requests: exact also while no step runs."""
    if not end > begin:
        return
    stayed = requests[requests["status"] != "rejected"]
    arrival, started, finish = (
        stayed[name].to_numpy(dtype=float, na_value=end) for name in ("scheduled_arrival", "started", "finish")
    )
    edges = np.array([begin, end])
    yield "concurrency_mean", mean_inside(arrival, finish, edges)[0]
    yield "queue_depth_mean", mean_inside(arrival, started, edges)[0]
    yield "queue_depth_max", most_inside(arrival, started)


def _engine(steps: pd.DataFrame, span: float | None, max_num_seqs: int, num_blocks: int) -> Figures:
    duration = steps["duration"]
    yield "slot_utilisation", ratio((steps["computing"] * duration).sum() / max_num_seqs, span)
    yield "kv_utilisation", ratio((steps["kv_used"] * duration).sum() / num_blocks, span)
    yield "running_mean", ratio((steps["running"] * duration).sum(), span)
    yield "batch_efficiency", ratio(steps["computing"].sum(), steps["held"].sum())


def _work(requests: pd.DataFrame, steps: pd.DataFrame) -> Figures:
    recomputed = steps["recomputed_tokens"].sum()
    computed = steps["decode_tokens"].sum() + steps["prefill_tokens"].sum() + recomputed
    started = requests[requests["started"].notna()]
    yield "step_tokens_mean", ratio(computed, len(steps))
    padding = steps["padding_tokens"].sum()
    yield "padding_waste", ratio(padding, computed + padding)
    yield "recompute_tax", ratio(recomputed, computed)
    yield "preemptions", requests["preemptions"].sum()
    yield "swapped_blocks", steps["swapped_blocks"].sum()
    yield "bypassed_max", requests["bypassed"].max() if len(requests) else None
    yield "prefix_hit_rate", ratio(started["cached_tokens"].sum(), started["prompt_tokens"].sum())


def _parts(requests: pd.DataFrame, steps: pd.DataFrame) -> Figures:
    """What the time of finished requests went into; undefined where one of them was preempted, see `decompose`."""
    parts = decompose(requests, steps)[(requests["status"] == "finished").to_numpy()]
    if len(steps) and len(parts) and parts.notna().all(axis=None):
        for name in ("prefill", "stalled", "decode"):
            yield f"{name}_mean", parts[name].mean()
