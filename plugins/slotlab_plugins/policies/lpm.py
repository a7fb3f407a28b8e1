"""What is in the prefix cache first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from slotlab import FOREVER, ONE_STEP, Policy, Quiet, RequestView, View, Waiting, require
from slotlab.limits import MOST_REQUESTS, MOST_TOKENS


@dataclass
class LPM(Policy):
    """Longest prefix match first (SGLang, Zheng et al., 2024): who finds most of its prompt in the prefix cache goes first.

    Of the `window` waiting requests that arrived first; those behind them follow in the order of arrival. Where no more than
    `min_match` tokens are cached, and another request with so many tokens in common goes before, a request is put behind the
    others of the window: it will find what the other one computes. Nothing ages: while others come whose prefix is cached, one
    without a match waits.
    """

    window: int = 128
    min_match: int = 32

    uses: ClassVar[tuple[str, ...]] = ("prefix_cache",)

    def __post_init__(self) -> None:
        require(1 <= self.window <= MOST_REQUESTS, "window", self.window, f"at least 1 and at most {MOST_REQUESTS}")
        require(1 <= self.min_match <= MOST_TOKENS, "min_match", self.min_match, f"at least 1 and at most {MOST_TOKENS}")

    def order(self, waiting: Waiting, view: View) -> Iterator[RequestView]:
        """Lazy: requests are compared with those that were pulled before them, and with no others."""
        window = list(islice(waiting, self.window))
        hits = {req: view.prefix_hits(req) for req in window}
        firsts, later = list[RequestView](), list[RequestView]()
        for req in sorted(window, key=lambda req: -hits[req]):  # stable: equal matches in the order of arrival
            if req not in waiting:  # started, or hidden, by a modifier
                continue
            if hits[req] <= self.min_match:
                if any(view.shared_prefix(first, req) >= self.min_match for first in firsts):
                    later.append(req)
                    continue
                firsts.append(req)
            yield req
        yield from (req for req in later if req in waiting)
        yield from (req for req in waiting if req not in hits)

    def quiet(self, view: View) -> Quiet:
        """What is cached may change with each block that is filled or taken."""
        return ONE_STEP if view.slots_left > 0 and len(view.waiting) > 1 else FOREVER


CHOICES = {"lpm": LPM}
