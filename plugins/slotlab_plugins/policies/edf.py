"""Deadlines."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import merge

from slotlab import FOREVER, Key, Policy, Quiet, RequestView, Status, View, Waiting, require
from slotlab.limits import LATEST

IN_TIME, LATE = False, True  # lanes


@dataclass
class EDF(Policy):
    """Earliest deadline for the first token first; those without one after them, those who must miss theirs after everybody.

    A request is late when its deadline is nearer than its prompt takes at `service` seconds per token; late ones run first come
    first served (relegation, as in Niyama). Without this rule EDF collapses past saturation: each slot goes to somebody who
    misses by a little. `service=0` relegates only once the deadline has passed, when many slots have already been lost; set it
    to what a prompt token costs on the engine, rather too high than too low. Who has emitted its first token is never late.
    """

    service: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.service <= LATEST, "service", self.service, f"at least 0 and at most {LATEST:g}")
        self._view: View | None = None  # the one that every event is given, for those that are not

    def latest_start(self, req: RequestView) -> float:
        """The last time at which `req` can go on and be in time, on the run's clock; infinity if it cannot be late."""
        if req.deadline is None or req.emitted:
            return math.inf
        return req.deadline - self.service * req.remaining

    def late(self, req: RequestView) -> bool:
        """Whether `req` must miss its deadline."""
        assert self._view is not None, "nobody is asked about before it has arrived"
        return self._view.now > self.latest_start(req)

    def lane(self, req: RequestView) -> Hashable:
        return LATE if self.late(req) else IN_TIME

    def key(self, req: RequestView) -> float:
        if self.late(req):
            return req.arrival
        return math.inf if req.deadline is None else req.deadline

    def rank(self, req: RequestView, view: View) -> Key:
        return self.late(req), self.key(req)

    def order(self, waiting: Waiting, view: View) -> Iterator[RequestView]:
        passed = []  # late since the last event
        for req in waiting.walk(IN_TIME):
            if self.late(req):
                passed.append(req)
            else:
                yield req
        passed.sort(key=fcfs)
        for req in merge(waiting.walk(LATE), passed, key=fcfs):
            if req in waiting:  # it may have gone since the merge looked ahead
                yield req

    def arrived(self, req: RequestView, view: View) -> None:
        self._view = view
        self._relegate(view.waiting)

    def left(self, req: RequestView, status: Status) -> None:
        if self._view is not None:
            self._relegate(self._view.waiting)

    def _relegate(self, waiting: Waiting) -> None:
        """Move late heads to their lane, each once, so that `order` need not walk past them again.

        Heads are enough: whoever was not late when it was reached has started, or was the last to be reached.
        """
        while waiting.count(IN_TIME) and self.late(head := waiting.head(IN_TIME)):
            waiting.refresh(head)

    def quiet(self, view: View) -> Quiet:
        """Until the next one is late; nobody starts past it."""
        first = next(self.order(view.waiting, view), None) if view.slots_left > 0 else None
        return FOREVER if first is None or self.late(first) else Quiet(until=self.latest_start(first))


def fcfs(req: RequestView) -> tuple[float, int]:
    """The order of those who are late."""
    return req.arrival, req.seq


CHOICES = {"edf": EDF}
