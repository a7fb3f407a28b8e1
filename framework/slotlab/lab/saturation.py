"""What a burst of requests says about the rate that a system sustains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotlab.record.means import half_width
from slotlab.workload import Arrival

BATCHES = 10  # of neighbouring answers, whose mean gaps are taken for independent


@dataclass(frozen=True)
class Saturation:
    """Arrivals per unit of time that a saturated system serves; half the 95 % interval, relative; from how many requests."""

    rate: float
    half_width: float
    requests: int


def saturation(ends: Sequence[float], requests: int) -> Saturation:
    """From the times of the answers, in order, to a burst of `requests` requests, of which some may have been refused.

    What counts is the time between the first and the last tenth of the answers: the system was full.
    """
    first, last = len(ends) // 10, len(ends) * 9 // 10
    offered = requests / len(ends)
    if last == first or ends[last] == ends[first]:
        return Saturation(offered * len(ends) / ends[-1], math.inf, requests)
    rate = offered * (last - first) / (ends[last] - ends[first])
    size = (last - first) // BATCHES
    gaps = [ends[first + (i + 1) * size] - ends[first + i * size] for i in range(BATCHES)] if size else []
    return Saturation(rate, half_width(gaps), requests)


def concatenate(draws: Sequence[Sequence[Arrival]]) -> list[Arrival]:
    """Several draws of a workload as one."""
    joined: list[Arrival] = []
    for arrivals in draws:
        first = len(joined)
        joined += (a if a.follows is None else replace(a, follows=a.follows + first) for a in arrivals)
    return joined
