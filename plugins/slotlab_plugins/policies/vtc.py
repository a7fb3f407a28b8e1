"""Fair share between tenants, in tokens."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from slotlab import FOREVER, Quiet, RequestView, Status, View
from slotlab_plugins.tenants import Tenants


@dataclass
class VTC(Tenants):
    """Fair share: the waiting tenant with the least service per weight goes first (VTC, Sheng et al., OSDI 2024).

    A request pays `input_price` per prompt token when it first starts and `output_price` per token as it is emitted;
    what is computed again is not paid again. A tenant that comes back to an empty queue is lifted to the least counter of
    those that queue, else to the counter of the tenant that last left the queue: nobody saves up credit while away.
    Tokens are counted as integers and divided by the weight only to compare, so k steps at once equal one step k times.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._last_left: str | None = None
        self._queued: set[int] = set()  # ids of those who have not started yet

    def arrived(self, req: RequestView, view: View) -> None:
        super().arrived(req, view)
        self._queued.add(req.id)
        queued = [str(lane) for lane in view.waiting.lanes()]
        if req.tenant not in queued:
            last = self.counter(self._last_left) if self._last_left else 0.0
            self.lift(req.tenant, min(map(self.counter, queued), default=last))

    def started(self, req: RequestView, cached: int) -> None:
        self._last_left = req.tenant  # if nobody else queues, its queue was the last to empty
        self._queued.discard(req.id)
        super().started(req, cached)

    def preempted(self, req: RequestView, lost: int) -> None:
        if not req.preemptions:
            self._queued.add(req.id)
        super().preempted(req, lost)

    def left(self, req: RequestView, status: Status) -> None:
        if req.id in self._queued:  # aborted, or given up
            self._last_left = req.tenant
            self._queued.discard(req.id)
        super().left(req, status)

    def quiet(self, view: View) -> Quiet:
        """Until the tenant that is next no longer is: the counters of running tenants grow at steady rates."""
        tenants = [str(lane) for lane in view.waiting.lanes()]
        if view.slots_left <= 0 or len(tenants) < 2:
            return FOREVER
        busy = Counter(req.tenant for req in view.running)
        pace = {tenant: self.output_price * busy[tenant] / self._weight[tenant] for tenant in tenants}
        first = next(self.order(view.waiting, view)).tenant
        mine = self.counter(first)
        steps = [(self.counter(t) - mine) / (pace[first] - pace[t]) for t in tenants if pace[t] < pace[first]]
        return Quiet(steps=max(1, int(min(steps)))) if steps else FOREVER


CHOICES = {"vtc": VTC}
