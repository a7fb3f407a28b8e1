"""Fair share between tenants, in tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from slotlab import FOREVER, Key, Policy, Quiet, RequestView, Served, Status, View, Waiting, require


@dataclass
class VTC(Policy):
    """Fair share: the waiting tenant with the least service per weight goes first (VTC, Sheng et al., OSDI 2024).

    A request pays `input_price` per prompt token when it first starts and `output_price` per token as it is emitted;
    what is computed again is not paid again. A tenant that comes back to an empty queue is lifted to the least counter of
    those that queue, else to the counter of the tenant that last left the queue: nobody saves up credit while away.
    Tokens are counted as integers and divided by the weight only to compare, so k steps at once equal one step k times.
    """

    input_price: int = 1
    output_price: int = 2

    def __post_init__(self) -> None:
        require(self.input_price >= 0, "input_price", self.input_price, "at least 0")
        require(self.output_price >= 0, "output_price", self.output_price, "at least 0")
        self._tokens: Counter[str] = Counter()  # priced service
        self._lift: dict[str, float] = {}  # what lifts have added, in tokens per weight
        self._weight: dict[str, float] = {}
        self._paid: set[int] = set()
        self._last_left: str | None = None

    def counter(self, tenant: str) -> float:
        """Service per weight, lifts included."""
        return self._lift.get(tenant, 0.0) + self._tokens[tenant] / self._weight[tenant]

    def lane(self, req: RequestView) -> Hashable:
        return req.tenant

    def rank(self, req: RequestView, view: View) -> Key:
        return self.counter(req.tenant)

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        while waiting:
            heads = (waiting.head(tenant) for tenant in waiting.lanes())
            yield min(heads, key=lambda req: (self.counter(req.tenant), req.seq))

    def arrived(self, req: RequestView, view: View) -> None:
        tenant = req.tenant
        self._weight[tenant] = req.weight
        queued = [str(lane) for lane in view.waiting.lanes()]
        if tenant in queued:
            return
        floor = min(map(self.counter, queued)) if queued else self.counter(self._last_left) if self._last_left else 0.0
        self._lift[tenant] = self._lift.get(tenant, 0.0) + max(0.0, floor - self.counter(tenant))

    def started(self, req: RequestView, cached: int) -> None:
        self._last_left = req.tenant  # if nobody else queues, its queue was the last to empty
        if req.id not in self._paid:
            self._paid.add(req.id)
            self._tokens[req.tenant] += self.input_price * req.prompt_tokens

    def served(self, work: Served, steps: int) -> None:
        for req, _, output in work:
            self._tokens[req.tenant] += self.output_price * output

    def preempted(self, req: RequestView, lost: int) -> None:
        if not req.preemptions:  # it never ran
            self._paid.discard(req.id)
            self._tokens[req.tenant] -= self.input_price * req.prompt_tokens

    def left(self, req: RequestView, status: Status) -> None:
        self._paid.discard(req.id)

    def quiet(self, view: View) -> Quiet:
        """Until the tenant that is next no longer is: the counters of running tenants grow at steady rates."""
        tenants = [str(lane) for lane in view.waiting.lanes()]
        if view.slots_left <= 0 or len(tenants) < 2:
            return FOREVER
        busy = Counter(req.tenant for req in view.running)
        pace = {tenant: self.output_price * busy[tenant] / self._weight[tenant] for tenant in tenants}
        first = next(iter(self.order(view.waiting, view))).tenant
        mine = self.counter(first)
        steps = [(self.counter(t) - mine) / (pace[first] - pace[t]) for t in tenants if pace[t] < pace[first]]
        return Quiet(steps=max(1, int(min(steps)))) if steps else FOREVER


CHOICES = {"vtc": VTC}
