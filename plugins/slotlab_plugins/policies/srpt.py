"""Shortest remaining output first, with a bound on displacement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slotlab import FOREVER, Key, Misfit, Policy, Quiet, RequestView, Status, Verdict, View, require


@dataclass
class SRPT(Policy):
    """Shortest predicted remaining output first; a shorter request displaces a running one only while that one is young.

    A running request is pinned once it has emitted `floor(c * predicted)` tokens: nobody displaces it any more, for by then it
    holds much KV and is nearly done (TRAIL, Shahout et al., ICLR 2025). `c=0` is shortest job first without displacement,
    `c=1` is SRPT. Who is displaced gives up its KV as the chosen preemption says; what is not swapped is computed again.
    """

    c: float = 0.8

    def __post_init__(self) -> None:
        require(0 <= self.c <= 1, "c", self.c, "from 0 to 1")

    def key(self, req: RequestView) -> float:
        return max(1, req.predicted_output - req.emitted)  # whoever has outlived its prediction has at least one to go

    def rank(self, req: RequestView, view: View) -> Key:
        return not self.pinned(req), self.key(req)

    def pinned(self, req: RequestView) -> bool:
        """Whether `req` keeps its slot to the end, as long as the KV suffices for those that run."""
        return req.status is Status.RUNNING and req.emitted >= math.floor(self.c * req.predicted_output)

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # as others decode they only get better ranks: who could not be displaced cannot be later


CHOICES = {"srpt": SRPT}
