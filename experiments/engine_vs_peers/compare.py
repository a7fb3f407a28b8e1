"""Ratios of paired rounds, whether a round was disturbed, and how far two lists of outputs agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

FOREIGN_LIMIT = 0.1  # of one core, busy with what is not ours, over which a round does not count
STEAL_LIMIT = 0.02


@dataclass(frozen=True)
class Ratio:
    """How many times the first is faster, with a 95 % interval."""

    ratio: float
    lo: float
    hi: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} [{self.lo:.2f}, {self.hi:.2f}]"


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """The geometric mean of theirs / ours by round, with Student's t interval of the logarithms."""
    assert len(ours) == len(theirs) and len(ours) > 1, "an interval needs two rounds or more"
    logs = [math.log(b / a) for a, b in zip(ours, theirs, strict=True)]
    half = float(stats.t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean(logs)), math.exp(mean(logs) - half), math.exp(mean(logs) + half))


def agreement(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]], first: int) -> float:
    """The share of requests whose first tokens, `first` of them at most, are the same."""
    same = [list(a[:first]) == list(b[:first]) for a, b in zip(ours, theirs, strict=True)]
    return sum(same) / len(same)


@dataclass(frozen=True)
class Processors:
    """What all processors have done since the machine started, in seconds."""

    busy: float
    stolen: float


def processors(stat: str = "", ticks: int = 100) -> Processors:
    """From the text of /proc/stat."""
    first = (stat or Path("/proc/stat").read_text()).splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal, *_ = (int(number) / ticks for number in first)
    return Processors(user + nice + system + irq + softirq, steal)


def disturbance(before: Processors, after: Processors, own: float, wall: float) -> str | None:
    """Why the seconds between do not count: others' work, or time that the host took away. None if they count."""
    foreign = (after.busy - before.busy - own) / wall
    stolen = (after.stolen - before.stolen) / wall
    if foreign > FOREIGN_LIMIT:
        return f"others kept {foreign:.2f} cores busy"
    if stolen > STEAL_LIMIT:
        return f"the host took {stolen:.2f} cores away"
    return None
