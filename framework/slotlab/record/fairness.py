"""What each tenant got, and how evenly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slotlab.record.latency import emissions
from slotlab.record.percentiles import Floats, Ints

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1.0, 2.0  # of a token, as in VTC (Sheng et al., OSDI 2024)


def service(requests: pd.DataFrame) -> Floats:
    """Service of each request: prompt tokens computed for the first time, and output tokens emitted, weighted and added up.

    The prompt counts once its first output token is out: the table does not say how far an aborted prefill had come.
    """
    fresh = (requests["prompt_tokens"] - requests["cached_tokens"]).where(requests["first_token"].notna(), 0)
    total: Floats = (PROMPT_WEIGHT * fresh + OUTPUT_WEIGHT * requests["output_tokens"]).to_numpy(dtype=float)
    return total


def jain_index(shares: Floats) -> float | None:
    """(sum x)^2 / (n sum x^2) of the tenants' service per weight: 1 if all are equal, 1/n if one has it all.

    Jain, Chiu and Hawe 1984. None if nobody got anything. It does not ask who wanted more: `fairness_gap` does.
    """
    if not shares.any():
        return None
    parts = shares / shares.max()
    return float(parts.sum() ** 2 / (len(parts) * (parts**2).sum()))


def fairness_gap(requests: pd.DataFrame, weight: Mapping[str, float]) -> float | None:
    """Largest |W_f / w_f - W_g / w_g| of two tenants f, g over any interval (t1, t2] in which both are backlogged
    throughout.

    W(t1, t2] is a tenant's `service` in the interval: an output token counts when it is emitted, a prompt with its
    first output token. A tenant is backlogged while a request of its own, submitted and not rejected, has not
    started for the first time (a preempted request that queues again is not seen). The bound in VTC's theorem is on
    this quantity. In tokens per weight; None if no two tenants are ever backlogged together.
    """
    tenants = sorted(weight)
    code = requests["tenant"].map({name: i for i, name in enumerate(tenants)}).to_numpy(dtype=int)
    times, amounts, rows = service_events(requests)
    queues = (requests["status"] != "rejected").to_numpy()
    submitted, started = (requests[name].to_numpy(dtype=float)[queues] for name in ("submitted", "started"))
    grid = np.unique(np.concatenate([times, submitted, started[~np.isnan(started)]]))

    def steps(owner: Ints, when: Floats, amount: Floats | float) -> Floats:
        """Per tenant, the running sum of `amount` at each time of the grid; what is never is left out."""
        sums = np.zeros((len(tenants), len(grid) + 1))
        np.add.at(sums, (owner, np.searchsorted(grid, np.nan_to_num(when, nan=np.inf))), amount)
        total: Floats = np.cumsum(sums, axis=1)
        return total

    got = steps(code[rows], times, amounts) / np.array([[weight[name]] for name in tenants])
    queued = steps(code[queues], submitted, 1) + steps(code[queues], started, -1)
    waits = queued[:, :-2] > 0  # cell i: from grid[i], excluded, to grid[i + 1], included
    gaps = (_gap(got[f] - got[g], waits[f] & waits[g]) for f, g in combinations(range(len(tenants)), 2))
    return max((gap for gap in gaps if gap is not None), default=None)


def service_events(requests: pd.DataFrame) -> tuple[Floats, Floats, Ints]:
    """When service was given, how much, and the row of the request that got it: prompts first, then output tokens."""
    first = requests["first_token"].to_numpy(dtype=float)
    seen = np.flatnonzero(~np.isnan(first))
    fresh = (requests["prompt_tokens"] - requests["cached_tokens"]).to_numpy(dtype=float)[seen]
    times, rows = emissions(requests)
    amounts = np.concatenate([PROMPT_WEIGHT * fresh, np.full(len(times), OUTPUT_WEIGHT)])
    return np.concatenate([first[seen], times]), amounts, np.concatenate([seen, rows])


def _gap(difference: Floats, both: NDArray[np.bool_]) -> float | None:
    """Largest swing of `difference` (at grid points) within one run of cells that are true in `both`."""
    borders = np.flatnonzero(np.diff(np.concatenate([[0], both.astype(int), [0]])))
    if not len(borders):
        return None
    ranges = borders.copy()
    ranges[1::2] += 1  # cells a .. b - 1 lie between the points a .. b
    top, bottom = np.maximum.reduceat(difference, ranges)[::2], np.minimum.reduceat(difference, ranges)[::2]
    return float((top - bottom).max())


def tenant_metrics(
    requests: pd.DataFrame, latency: Mapping[str, Floats], weights: Mapping[str, float], span: float | None
) -> Iterator[tuple[str, float | None]]:
    """The figures of each tenant and those that compare them; none unless there are two tenants at least."""
    tenants = sorted(requests["tenant"].unique())
    if len(tenants) < 2:
        return
    weight = {name: weights.get(name, 1.0) for name in tenants}
    assert min(weight.values()) > 0, f"weights of tenants must be positive: {weight}"
    got = service(requests)
    shares = []
    for name in tenants:
        own = (requests["tenant"] == name).to_numpy()
        for kind in ("ttft", "e2e", "slowdown"):
            values = latency[kind][own & ~np.isnan(latency["e2e"])]
            yield f"tenant_{name}_{kind}_mean", values.mean() if len(values) else None
        yield f"tenant_{name}_service", got[own].sum()
        yield f"tenant_{name}_output_throughput", requests["output_tokens"][own].sum() / span if span else None
        shares.append(got[own].sum() / weight[name])
    yield "jain_index", jain_index(np.array(shares))
    yield "fairness_gap", fairness_gap(requests, weight)
