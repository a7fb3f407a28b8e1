"""Shortest job first."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Key, Policy, RequestView, require
from slotlab.limits import MOST_TIMES


@dataclass
class SJF(Policy):
    """Shortest predicted output first; one second of waiting makes up for `aging` tokens.

    Linear aging is a fixed key: all age alike, so `length - aging * waited` orders requests as `length + aging * arrival`.
    """

    aging: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.aging <= MOST_TIMES, "aging", self.aging, f"at least 0 and at most {MOST_TIMES:g}")

    def key(self, req: RequestView) -> Key:
        return req.predicted_output + self.aging * req.arrival


CHOICES = {"sjf": SJF}
