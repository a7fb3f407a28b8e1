"""A bound on waiting, in requests."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from slotlab import RequestView, View, require
from slotlab.limits import MOST_REQUESTS
from slotlab_plugins.promotion import Promotion


@dataclass
class BypassCap(Promotion):
    """Once `cap` requests that arrived later have started, a waiting one goes first (vLLM #51375, ATOM #2158).

    The unit is starts and not seconds: a queue that nobody leaves ages nobody. The one that arrived first has always seen the
    most, so only that one is looked at. Whom a displacing policy evicts at once has not started: there the bound does not hold.
    """

    cap: int = 16

    def __post_init__(self) -> None:
        require(1 <= self.cap <= MOST_REQUESTS, "cap", self.cap, f"at least 1 and at most {MOST_REQUESTS}")
        self._started: list[int] = []  # numbers of those who started, sorted; none below the oldest that waits

    def overdue(self, req: RequestView, view: View) -> bool:
        return len(self._started) - bisect_right(self._started, req.seq) >= self.cap

    def arrived(self, req: RequestView, view: View) -> None:
        gone = bisect_left(self._started, view.waiting.oldest().seq) if view.waiting else len(self._started)
        del self._started[:gone]
        self.inner.arrived(req, view)

    def started(self, req: RequestView, cached: int) -> None:
        if not req.preemptions:
            insort(self._started, req.seq)
        self.inner.started(req, cached)

    def preempted(self, req: RequestView, lost: int) -> None:
        if not req.preemptions:  # it had not really started
            del self._started[bisect_left(self._started, req.seq)]
        self.inner.preempted(req, lost)


CHOICES = {"bypass_cap": BypassCap}
