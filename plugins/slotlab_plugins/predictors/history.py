"""As long as answers have been of late."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

from slotlab import Predictor, Request, RequestView, require
from slotlab.limits import MOST_REQUESTS


class Recent:
    """The last `window` numbers, sorted."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.arrived: deque[int] = deque()
        self.ordered: list[int] = []

    def add(self, number: int) -> None:
        """Take `number` in, and drop the oldest if that makes too many."""
        self.arrived.append(number)
        insort(self.ordered, number)
        if len(self.arrived) > self.window:
            del self.ordered[bisect_left(self.ordered, self.arrived.popleft())]

    def quantile(self, share: float) -> int:
        """The smallest number that at least this share of the numbers does not exceed."""
        return self.ordered[max(0, math.ceil(share * len(self.ordered)) - 1)]


@dataclass
class History(Predictor):
    """A quantile of the last `window` output lengths of the tenant's requests with prompts about as long.

    About as long: within the same powers of two. Until one of those has finished it is that of the tenant, then of everybody,
    then `max_tokens`. Learning from the lengths that went before is what LightLLM's past-future scheduler does.
    """

    quantile: float = 0.5
    window: int = 1000

    def __post_init__(self) -> None:
        require(0 <= self.quantile <= 1, "quantile", self.quantile, "from 0 to 1")
        require(1 <= self.window <= MOST_REQUESTS, "window", self.window, f"at least 1 and at most {MOST_REQUESTS}")
        self._recent: defaultdict[Hashable, Recent] = defaultdict(partial(Recent, self.window))

    def predict(self, req: Request, truth: int | None) -> int:
        known = (self._recent[group] for group in self._groups(req) if group in self._recent)
        return next((recent.quantile(self.quantile) for recent in known), req.max_tokens)

    def finished(self, req: RequestView) -> None:
        for group in self._groups(req):
            self._recent[group].add(req.emitted)

    @staticmethod
    def _groups(req: Request | RequestView) -> tuple[Hashable, ...]:
        """From the closest kin to everybody."""
        return (req.tenant, req.prompt_tokens.bit_length()), (req.tenant,), ()


CHOICES = {"history": History}
