"""What each request's time went into; the parts add up to its end-to-end latency."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from slotlab.record.conservation import stepped_time
from slotlab.record.percentiles import Floats

PARTS = ("queued", "prefill", "decode", "stalled", "preempted")
PLACE = ["point", "repeat"]


def decompose(requests: pd.DataFrame, steps: pd.DataFrame, slots: pd.DataFrame | None = None) -> pd.DataFrame:
    """The `PARTS` of each row's e2e, in the index of `requests`; NaN where undefined. Their sum is e2e, up to rounding.

    queued: from the scheduled arrival to the first start. preempted: after that, the steps in which it held no slot
    (evicted or paused) or computed again what it had lost. stalled: of the other steps after its first token, the
    share of each step's duration that is others' prefill (prompt or recomputed tokens / all tokens of the step).
    prefill: the rest until its first token. decode: the rest after it, time between two steps included.

    Only finished requests have parts; preempted ones only where a table `slots` says when they were out. (Who was
    paused and never evicted is not seen to be: that time counts as decode.)
    """
    parts = pd.DataFrame(np.nan, index=requests.index, columns=list(PARTS))
    for _, rows in requests.groupby(PLACE):
        some = _same_place(steps, rows)
        parts.loc[rows.index] = _whole(rows, some)
        if slots is not None and rows["preemptions"].any():
            held = _same_place(slots, rows)
            for index, row in rows[rows["preemptions"] > 0].iterrows():
                parts.loc[index] = _broken(row, some, held)
    return parts


def _same_place(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    return table[(table[PLACE] == rows[PLACE].iloc[0]).all(axis=1)]


def _share(steps: pd.DataFrame) -> Floats:
    prefill = steps["prefill_tokens"] + steps["recomputed_tokens"]
    share: Floats = (prefill / (prefill + steps["decode_tokens"]).clip(lower=1)).to_numpy(dtype=float)
    return share


def _whole(requests: pd.DataFrame, steps: pd.DataFrame) -> Floats:
    """The parts of requests that nobody preempted; NaN for the others."""
    arrival, started, first, finish = (
        requests[name].to_numpy(dtype=float) for name in ("scheduled_arrival", "started", "first_token", "finish")
    )
    times, others = stepped_time(steps, _share(steps))
    stalled = np.interp(finish, times, others) - np.interp(first, times, others) if len(steps) else np.zeros(len(requests))
    parts = np.column_stack([started - arrival, first - started, finish - first - stalled, stalled, 0.0 * finish])
    parts[(requests["preemptions"] > 0).to_numpy() | np.isnan(finish)] = np.nan
    return parts


def _broken(req: pd.Series, steps: pd.DataFrame, slots: pd.DataFrame) -> list[float]:
    """The parts of one request that was preempted."""
    arrival, started, first, finish = (float(req[name]) for name in ("scheduled_arrival", "started", "first_token", "finish"))
    if math.isnan(finish):
        return [math.nan] * len(PARTS)
    alive = steps[(steps["start"] >= started) & (steps["start"] < finish)]
    own = slots[(slots["request"] == req["id"]) & (slots["kind"] != "recompute")]
    away = ~alive["step"].isin(own["step"]).to_numpy()
    duration, late = alive["duration"].to_numpy(dtype=float), (alive["start"] >= first).to_numpy()
    early, later = float(duration[away & ~late].sum()), float(duration[away & late].sum())
    stalled = float((_share(alive) * duration)[late & ~away].sum())
    return [started - arrival, first - started - early, finish - first - later - stalled, stalled, early + later]
