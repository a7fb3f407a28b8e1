"""So many requests per minute."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial

from slotlab import Accept, Admission, Hold, Reject, RequestView, Status, View, require
from slotlab.limits import LATEST, MOST_REQUESTS


@dataclass
class RateLimit(Admission):
    """At most `limit` requests of a tenant within any `window` seconds; more are held in order of arrival, or rejected.

    The limit on requests per minute of hosted services, which fair policies are compared with (VTC, 2024). It counts by the
    times of arrival, so in an open loop every policy and engine sees the same requests held or rejected.
    """

    limit: int = 60
    window: float = 60.0
    reject: bool = False

    def __post_init__(self) -> None:
        require(1 <= self.limit <= MOST_REQUESTS, "limit", self.limit, f"at least 1 and at most {MOST_REQUESTS}")
        require(0 < self.window <= LATEST, "window", self.window, f"greater than 0 and at most {LATEST:g}")
        self._turns: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=self.limit))  # each tenant's last

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        if req.status is Status.HELD:
            return Accept()  # its turn was booked when it came, so nobody overtakes it
        turns = self._turns[req.tenant]
        turn = max(req.arrival, turns[0] + self.window) if len(turns) == self.limit else req.arrival
        if self.reject and turn > req.arrival:
            return Reject(f"more than {self.limit} requests of its tenant in {self.window:g} s")
        turns.append(turn)
        return Hold(turn) if turn > view.now else Accept()


CHOICES = {"rate_limit": RateLimit}
