"""Those who had a slot get the next one."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import RequestView, Status, View, Waiting
from slotlab_plugins.promotion import Promotion


@dataclass
class PinPreempted(Promotion):
    """A preempted request starts again before anybody else does; of several the one that arrived first (vLLM under fcfs)."""

    def __post_init__(self) -> None:
        self._preempted: dict[int, RequestView] = {}  # and not started again, by sequence number

    def overdue(self, req: RequestView, view: View) -> bool:
        return req.seq in self._preempted

    def due(self, waiting: Waiting, view: View) -> RequestView | None:
        queued = (seq for seq, req in self._preempted.items() if req in waiting)  # this step's victims are not yet
        first = min(queued, default=None)
        return None if first is None else self._preempted[first]

    def preempted(self, req: RequestView, lost: int) -> None:
        if req.preemptions:
            self._preempted[req.seq] = req
        self.inner.preempted(req, lost)

    def started(self, req: RequestView, cached: int) -> None:
        self._preempted.pop(req.seq, None)
        self.inner.started(req, cached)

    def left(self, req: RequestView, status: Status) -> None:
        self._preempted.pop(req.seq, None)
        self.inner.left(req, status)


CHOICES = {"pin_preempted": PinPreempted}
