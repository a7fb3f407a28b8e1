"""What policies share that are fair between tenants: a lane and an account for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from slotlab import Key, Policy, RequestView, Served, Status, View, Waiting, require
from slotlab.limits import MOST_PRICE


@dataclass
class Tenants(Policy):
    """First come, first served within a tenant; between tenants the one with the least service per weight.

    A request pays `input_price` per prompt token when it first starts and `output_price` per token as it is emitted;
    what is computed again is not paid again. Tokens are counted as integers, so k steps at once equal one step k times.
    """

    input_price: int = 1
    output_price: int = 2

    def __post_init__(self) -> None:
        for name in ("input_price", "output_price"):
            value = getattr(self, name)
            require(0 <= value <= MOST_PRICE, name, value, f"at least 0 and at most {MOST_PRICE}")
        self._tokens: Counter[str] = Counter()  # priced service
        self._lift: dict[str, float] = {}  # what lifts have added, in tokens per weight
        self._weight: dict[str, float] = {}
        self._paid: set[int] = set()

    def price(self, req: RequestView) -> int:
        """What `req` pays when it first starts."""
        return self.input_price * req.prompt_tokens

    def counter(self, tenant: str) -> float:
        """Service per weight, lifts included."""
        return self._lift.get(tenant, 0.0) + self._tokens[tenant] / self._weight[tenant]

    def lift(self, tenant: str, floor: float) -> None:
        """Raise a counter that is below `floor`."""
        self._lift[tenant] = self._lift.get(tenant, 0.0) + max(0.0, floor - self.counter(tenant))

    def foremost(self, heads: Mapping[str, RequestView]) -> str:
        """Whose turn it is among tenants with waiting requests, of which these are the first."""
        return min(heads, key=lambda tenant: (self.counter(tenant), heads[tenant].seq))

    def lane(self, req: RequestView) -> Hashable:
        return req.tenant

    def rank(self, req: RequestView, view: View) -> Key:
        return self.counter(req.tenant)

    def order(self, waiting: Waiting, view: View) -> Iterator[RequestView]:
        walks = {str(lane): waiting.walk(lane) for lane in waiting.lanes()}
        heads: dict[str, RequestView] = {tenant: next(walk) for tenant, walk in walks.items()}
        while heads:
            tenant = self.foremost(heads)
            yield heads[tenant]
            gone = [t for t, req in heads.items() if t == tenant or req not in waiting]  # a modifier may start or hide others
            for t in gone:
                following = next((req for req in walks[t] if req in waiting), None)
                if following:
                    heads[t] = following
                else:
                    del heads[t]

    def arrived(self, req: RequestView, view: View) -> None:
        self._weight[req.tenant] = req.weight

    def started(self, req: RequestView, cached: int) -> None:
        if req.id not in self._paid:
            self._paid.add(req.id)
            self._tokens[req.tenant] += self.price(req)

    def served(self, work: Served, steps: int) -> None:
        for req, _, output in work:
            self._tokens[req.tenant] += self.output_price * output

    def preempted(self, req: RequestView, lost: int) -> None:
        if not req.preemptions:  # it never ran
            self._paid.discard(req.id)
            self._tokens[req.tenant] -= self.price(req)

    def left(self, req: RequestView, status: Status) -> None:
        self._paid.discard(req.id)
