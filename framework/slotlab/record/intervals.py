"""How many requests are somewhere (in the system, in the queue), when each enters at one time and leaves at another."""

from __future__ import annotations

import numpy as np

from slotlab.record.percentiles import Floats


def mean_inside(entered: Floats, left: Floats, edges: Floats) -> Floats:
    """Time average of the number inside, between each two neighbours of `edges`. Exact: the integral, not samples."""
    begin, end = edges[:-1, None], edges[1:, None]
    inside = np.clip(left, begin, end) - np.clip(entered, begin, end)
    average: Floats = inside.sum(axis=1) / np.diff(edges)
    return average


def most_inside(entered: Floats, left: Floats) -> int:
    """Largest number inside at any time; who enters and leaves at one instant was never inside."""
    stay = left > entered
    times = np.concatenate([left[stay], entered[stay]])  # at equal times, who leaves comes first
    moves = np.repeat([-1, 1], stay.sum())
    inside = np.cumsum(moves[np.argsort(times, kind="stable")])
    return int(inside.max(initial=0))


def empty_share(entered: Floats, left: Floats, begin: float, end: float) -> float:
    """Share of [begin, end] in which nobody is inside."""
    order = np.argsort(entered, kind="stable")
    comes = np.append(np.clip(entered[order], begin, end), end)
    gone = np.maximum.accumulate(np.append(begin, np.clip(left[order], begin, end)))
    return float(np.maximum(comes - gone, 0).sum() / (end - begin))
