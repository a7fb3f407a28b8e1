"""Which limit kept requests waiting, step by step; and what no schedule can do better than."""

from __future__ import annotations

import pandas as pd

BOUNDS = {
    f"bound_{name}_share": f"sum(duration of steps in which {what}) / sum(duration of steps)"
    for name, what in {
        "slots": "all slots were taken, and somebody waited",
        "tokens": "the token budget kept the next waiting request out",
        "kv": "KV blocks kept the next waiting request out",
        "gate": "the batching let nobody in",
        "none": "nothing kept anybody out",
    }.items()
}

ORACLE = {
    "bound_e2e_mean": "mean e2e of the same requests at the same costs under clairvoyant, preemptive SRPT, KV unlimited [time]",
    "bound_output_throughput": "output tokens / least time that the engine's costs allow, all slots always full [tokens/time]",
}


def bound_shares(steps: pd.DataFrame) -> dict[str, float]:
    """`bound_<name>_share` for each bound; they add up to 1. Empty without steps."""
    busy = float(steps["duration"].sum())
    if not busy:
        return {}
    held = steps.groupby("bound")["duration"].sum()
    return {key: float(held.get(key.split("_")[1], 0.0)) / busy for key in BOUNDS}
