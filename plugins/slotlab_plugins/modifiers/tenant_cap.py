"""A bound on what one tenant may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slotlab import ONE_STEP, Modifier, Quiet, RequestView, Status, View, Waiting, require
from slotlab.limits import MOST_SLOTS


@dataclass
class TenantCap(Modifier):
    """At most `max_running` requests of a tenant run at once; the others of a tenant that has so many are not seen by the policy.

    Slots may stay free while capped tenants wait. Choose it last: a modifier around it may start whom it hides. Every look at
    the queue costs a glance at each request of a capped tenant.
    """

    max_running: int = 8

    def __post_init__(self) -> None:
        require(1 <= self.max_running <= MOST_SLOTS, "max_running", self.max_running, f"at least 1 and at most {MOST_SLOTS}")
        self._tenant: dict[int, str] = {}  # of each running request
        self._running: Counter[str] = Counter()

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return self.inner.order(waiting.only(lambda req: self._running[req.tenant] < self.max_running), view)

    def started(self, req: RequestView, cached: int) -> None:
        self._tenant[req.id] = req.tenant
        self._running[req.tenant] += 1
        self.inner.started(req, cached)

    def preempted(self, req: RequestView, lost: int) -> None:
        self._leave(req)
        self.inner.preempted(req, lost)

    def left(self, req: RequestView, status: Status) -> None:
        self._leave(req)
        self.inner.left(req, status)

    def _leave(self, req: RequestView) -> None:
        if tenant := self._tenant.pop(req.id, None):
            self._running[tenant] -= 1
            if not self._running[tenant]:
                del self._running[tenant]

    def quiet(self, view: View) -> Quiet:
        """That of the policy, unless it would look at requests that it does not see in `order`."""
        capped = any(count >= self.max_running for count in self._running.values())
        return ONE_STEP if capped and view.waiting else self.inner.quiet(view)


CHOICES = {"tenant_cap": TenantCap}
