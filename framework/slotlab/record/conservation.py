"""What must hold in every run, whatever the policy: Little's law, and that no request and no token is lost or made up."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from slotlab.record.percentiles import Floats

ROUNDING = 1e-9  # relative, of sums of times


def conserved(requests: pd.DataFrame, steps: pd.DataFrame) -> None:
    """Assert the laws on one load point and repeat; one that was cut short (a request aborted) is exempt.

    Tokens: the steps computed each prompt token that no prefix hit saved once, each output token but the last once, and
    again what the requests say was computed again. Little's law for the
    running batch: the integral of the number that the steps say is running = the time that the requests say they ran,
    unless somebody was preempted, when the requests do not say how long they were out. (Little 1961: L = lambda W,
    exact over a closed window.)
    """
    if not len(steps) or (requests["status"] == "aborted").any():
        return
    done = requests[requests["status"] == "finished"]
    tokens = {
        "prefill_tokens": int((done["prompt_tokens"] - done["cached_tokens"]).sum()),
        "decode_tokens": int((done["output_tokens"] - 1).sum()),
        "recomputed_tokens": int(done["recomputed_tokens"].sum()),
    }
    for name, asked in tokens.items():
        computed = int(steps[name].sum())
        assert computed == asked, f"tokens are not conserved: the steps computed {computed} {name}, the requests say {asked}"
    if not requests["preemptions"].any():
        inside, area = _time_running(done, steps), float((steps["running"] * steps["duration"]).sum())
        assert math.isclose(inside, area, rel_tol=ROUNDING, abs_tol=ROUNDING), (
            f"Little's law does not hold: requests were running for {inside} in all, by the steps for {area}"
        )


def _time_running(done: pd.DataFrame, steps: pd.DataFrame) -> float:
    """The time that requests spent inside steps between start and finish: between two steps nothing runs."""
    ends, busy = stepped_time(steps)
    started, finish = (done[name].to_numpy(dtype=float) for name in ("started", "finish"))
    return float((np.interp(finish, ends, busy) - np.interp(started, ends, busy)).sum())


def stepped_time(steps: pd.DataFrame, share: Floats | None = None) -> tuple[Floats, Floats]:
    """Corners of the function `time spent in steps until t`, which is linear between them: times and values.

    share: counts each step's time in this proportion.
    """
    start, duration = (steps[name].to_numpy(dtype=float) for name in ("start", "duration"))
    total = np.concatenate([[0.0], np.cumsum(duration if share is None else duration * share)])
    times = np.column_stack([start, np.maximum(start + duration, start)]).ravel()
    values = np.column_stack([total[:-1], total[1:]]).ravel()
    return times, values
