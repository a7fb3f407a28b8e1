"""Response ratios."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from heapq import merge

from slotlab import FOREVER, Key, Policy, Quiet, RequestView, Status, View, Waiting


@dataclass
class HRRN(Policy):
    """Highest response ratio next: prompt tokens computed since it arrived, per prompt token of its own (SGLang).

    The clock of prompt tokens stands still while nothing is prefilled: the order depends on the load, not on the speed of the
    machine. `(waited + need) / need` orders requests as `waited / need` does. `need` are the prompt tokens that were not in the
    prefix cache on arrival; a preempted request keeps both. Requests of one need never overtake each other, so with a lane
    per need only the heads compete, however many wait behind them.
    """

    def __post_init__(self) -> None:
        self._since: dict[int, int] = {}  # the clock on arrival
        self._need: dict[int, int] = {}

    def arrived(self, req: RequestView, view: View) -> None:
        self._since[req.id] = view.prefill_clock
        self._need[req.id] = req.prompt_tokens - view.prefix_hits(req)  # never 0: a hit ends before the last token

    def lane(self, req: RequestView) -> Hashable:
        return self._need[req.id]

    def key(self, req: RequestView) -> Key:
        return self._since[req.id]

    def rank(self, req: RequestView, view: View) -> Key:
        return (self._since[req.id] - view.prefill_clock) / self._need[req.id]

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        """The lanes merged: the clock does not move within a step, so each request is looked at once."""
        lanes = map(waiting.walk, waiting.lanes())
        best_first = merge(*lanes, key=lambda req: (self.rank(req, view), req.seq))
        return (req for req in best_first if req in waiting)  # a head may have gone since the merge looked ahead

    def left(self, req: RequestView, status: Status) -> None:
        self._since.pop(req.id, None)
        self._need.pop(req.id, None)

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # decodes do not move the clock


CHOICES = {"hrrn": HRRN}
