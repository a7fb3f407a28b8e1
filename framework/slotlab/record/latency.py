"""How long each request took. Every latency counts from the *scheduled* arrival, so a late client hides nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from slotlab.record.percentiles import Floats, Ints

LATENCIES = ("queueing", "ttft", "tpot", "e2e", "slowdown")


def request_latencies(requests: pd.DataFrame) -> dict[str, Floats]:
    """`queueing`, `ttft`, `tpot`, `e2e` and `slowdown` of each row; NaN where undefined.

    queueing: to the first start. ttft: to the first token. e2e: to the last token, of finished requests. tpot: (last
    - first token) / (n - 1), of finished requests with n > 1. slowdown: e2e / (last token - first start), a number from 1
    on, of finished requests. Asserts 0 <= queueing <= ttft <= e2e on each row.
    """
    arrival, started, first, finish = (
        requests[name].to_numpy(dtype=float) for name in ("scheduled_arrival", "started", "first_token", "finish")
    )
    tokens = requests["output_tokens"].where(requests["output_tokens"] > 1).to_numpy(dtype=float)
    latency = {
        "queueing": started - arrival,
        "ttft": first - arrival,
        "tpot": (finish - first) / (tokens - 1),
        "e2e": finish - arrival,
        "slowdown": (finish - arrival) / np.where(finish > started, finish - started, np.nan),
    }
    _check(requests, latency)
    return latency


def _check(requests: pd.DataFrame, latency: Mapping[str, Floats]) -> None:
    queueing, ttft, e2e = latency["queueing"], latency["ttft"], latency["e2e"]
    done = (requests["status"] == "finished").to_numpy()
    ordered = ~((queueing < 0) | (ttft < queueing) | (e2e < ttft))
    complete = ~np.isnan(queueing + ttft + e2e)
    wrong = np.flatnonzero(~ordered | (done & ~complete))
    if len(wrong):
        row = requests.iloc[wrong[0]]
        figures = ", ".join(f"{name}={latency[name][wrong[0]]}" for name in ("queueing", "ttft", "e2e"))
        where = f"request {row['id']} (point {row['point']}, repeat {row['repeat']}, {row['status']})"
        raise AssertionError(f"{where}: 0 <= queueing <= ttft <= e2e does not hold: {figures}")


def emissions(requests: pd.DataFrame) -> tuple[Floats, Ints]:
    """The times of all output tokens, and the row number of the request that each belongs to."""
    times = [np.asarray(row, dtype=float) for row in requests["token_times"]]
    rows = np.repeat(np.arange(len(times)), [len(row) for row in times])
    return np.concatenate([*times, np.empty(0)]), rows


def token_gaps(requests: pd.DataFrame) -> Floats:
    """The gaps between neighbouring output tokens of one request, of all requests pooled (itl)."""
    times, rows = emissions(requests)
    gaps: Floats = np.diff(times)[np.diff(rows) == 0]
    return gaps
