"""Weighted fair queueing by predicted cost."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Quiet, RequestView, Served, Status, View
from slotlab_plugins.tenants import Tenants


@dataclass
class WFQ(Tenants):
    """Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): the smallest start tag goes first.

    A request that starts at the tag S moves its tenant to the finish tag F = S + cost / weight, where the cost is `input_price`
    per prompt token and `output_price` per token of the predicted output. Its start tag is S = max(V, F of the tenant's request
    before), with V the largest start tag of all that have started: nobody saves up credit while away. When a request leaves,
    its tenant's tag is corrected to what it did emit. Tags belong to tenants, not to requests, so what is learnt of one request
    moves all of its tenant's that wait. Between tenants with a backlog the started cost per weight differs by no more than
    one request's of each.

    The order by start tags, and not by finish tags, keeps many new tenants with short requests from starving a long one.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._virtual = 0.0
        self._started: dict[int, float] = {}  # start tags of those who started in the step being planned

    def price(self, req: RequestView) -> int:
        return super().price(req) + self.output_price * req.predicted_output

    def arrived(self, req: RequestView, view: View) -> None:
        super().arrived(req, view)
        if not view.waiting.count(req.tenant):
            self.lift(req.tenant, self._virtual)

    def started(self, req: RequestView, cached: int) -> None:
        if req.id not in self._paid:
            self._started[req.id] = self.counter(req.tenant)
        super().started(req, cached)

    def served(self, work: Served, steps: int) -> None:
        self._virtual = max([self._virtual, *self._started.values()])  # only now can no start be undone
        self._started.clear()

    def preempted(self, req: RequestView, lost: int) -> None:
        self._started.pop(req.id, None)
        super().preempted(req, lost)

    def left(self, req: RequestView, status: Status) -> None:
        if req.id in self._paid:
            self._tokens[req.tenant] += self.output_price * (req.emitted - req.predicted_output)
        super().left(req, status)

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # tags move as requests start and leave, not as they decode


CHOICES = {"wfq": WFQ}
