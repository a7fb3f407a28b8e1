"""Strict priority classes."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Key, Misfit, Policy, Quiet, RequestView, Verdict, View, require
from slotlab.limits import MOST_TIMES


@dataclass
class Priority(Policy):
    """Lower `priority` number first (as in vLLM), first come first served within a class.

    `aging`: classes that a second of waiting makes up for. `displace`: a request that does not fit takes the place of
    running ones of a worse class; aging decides who starts next, never who is displaced.
    """

    aging: float = 0.0
    displace: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.aging <= MOST_TIMES, "aging", self.aging, f"at least 0 and at most {MOST_TIMES:g}")

    def key(self, req: RequestView) -> Key:
        return req.priority + self.aging * req.arrival

    def rank(self, req: RequestView, view: View) -> Key:
        return req.priority

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT if self.displace else Verdict.STOP

    def quiet(self, view: View) -> Quiet:
        return FOREVER


CHOICES = {"priority": Priority, "priority_displace": Priority(displace=True)}
