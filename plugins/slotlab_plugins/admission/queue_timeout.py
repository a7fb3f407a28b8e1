"""A bound on waiting, kept by giving up."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Accept, Admission, Hold, Reject, RequestView, View, require
from slotlab.limits import LATEST


@dataclass
class QueueTimeout(Admission):
    """A request that has not started `timeout` seconds after its arrival is refused (the queue policy of Triton's batcher)."""

    timeout: float = 10.0

    def __post_init__(self) -> None:
        require(0 < self.timeout <= LATEST, "timeout", self.timeout, f"greater than 0 and at most {LATEST:g}")

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        until = req.arrival + self.timeout
        return Accept(until) if until > view.now else Reject(f"submitted {self.timeout:.4g} after its arrival, or later")


CHOICES = {"queue_timeout": QueueTimeout}
