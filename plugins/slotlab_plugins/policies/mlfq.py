"""Multi-level feedback queues."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from operator import attrgetter

from slotlab import FOREVER, Key, Misfit, Policy, Quiet, RequestView, Served, Status, Verdict, View, Waiting, require
from slotlab.limits import LATEST, MOST_TOKENS


@dataclass
class MLFQ(Policy):
    """Skip-join multi-level feedback queue (FastServe, Wu et al., 2023): who has had little service goes first.

    Level p lasts `quantum * 2**p` output tokens, of `levels` levels the last for ever; `prefill_speed` prompt tokens count as
    one. A request joins the first level that its prefill would not use up, and sinks when it has used up the quantum of its
    level; within a level it is first come, first served. While requests of higher levels wait, running ones of lower levels
    are paused, with their KV, and lose it if that is what lacks. After `starvation` seconds without a step, counted from its
    arrival or from the last step it was in, a request goes back to the top for a full quantum.
    """

    quantum: int = 32
    levels: int = 8
    prefill_speed: int = 16
    starvation: float = 3.0

    def __post_init__(self) -> None:
        require(1 <= self.quantum <= MOST_TOKENS, "quantum", self.quantum, f"at least 1 and at most {MOST_TOKENS}")
        require(1 <= self.levels <= 32, "levels", self.levels, "from 1 to 32")
        require(
            1 <= self.prefill_speed <= MOST_TOKENS, "prefill_speed", self.prefill_speed, f"at least 1 and at most {MOST_TOKENS}"
        )
        require(0 < self.starvation <= LATEST, "starvation", self.starvation, f"greater than 0 and at most {LATEST:g}")
        self._level: dict[int, int] = {}
        self._sinks: dict[int, int] = {}  # output tokens with which a request has used up its level
        self._idle: OrderedDict[RequestView, float] = OrderedDict()  # who waits or is paused, since when; the longest first
        self._view: View | None = None  # one object for the whole run
        self._last = 0.0  # when the last step ended

    def join(self, req: RequestView) -> int:
        """The level of a new request."""
        fits = (p for p in range(self.levels - 1) if self.quantum << p > req.prompt_tokens // self.prefill_speed)
        return next(fits, self.levels - 1)

    def lane(self, req: RequestView) -> Hashable:
        return self._level[req.id]

    def rank(self, req: RequestView, view: View) -> Key:
        return self._level[req.id]

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        lanes = (lane for lane in range(self.levels) if waiting.count(lane))
        return chain.from_iterable(map(waiting.walk, lanes))

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        """By level, as far as slots go; those of better levels who wait have theirs before those who run."""
        waiting = view.waiting
        if len(running) + len(waiting) <= view.slots_left:
            return running
        levels: list[list[RequestView]] = [[] for _ in range(self.levels)]
        for req in running:
            levels[self._level[req.id]].append(req)
        seated, ahead = list[RequestView](), 0
        for p, reqs in enumerate(levels):
            if (room := view.slots_left - ahead - len(seated)) <= 0:
                break
            seated += sorted(reqs, key=attrgetter("seq"))[:room]
            ahead += waiting.count(p)
        return seated

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT if why in (Misfit.BLOCKS, Misfit.RESERVE) else Verdict.STOP

    def arrived(self, req: RequestView, view: View) -> None:
        self._view = view
        self._put(req, self.join(req), -(req.prompt_tokens // self.prefill_speed))
        self._idle[req] = view.now

    def started(self, req: RequestView, cached: int) -> None:
        self._idle.pop(req, None)

    def preempted(self, req: RequestView, lost: int) -> None:
        if self._view and req not in self._idle:
            self._idle[req] = self._view.now

    def served(self, work: Served, steps: int) -> None:
        assert self._view, "served before anybody arrived"
        view, idle, sinks = self._view, self._idle, self._sinks
        for req, _, _ in work:
            idle.pop(req, None)  # it may have been paused
            while req.emitted >= (used_up := sinks[req.id]):  # a jump may pass through several levels
                self._put(req, self._level[req.id] + 1, used_up)
        if len(work) + len(idle) < len(view.running) + len(view.waiting):  # somebody was paused
            ran = {req for req, _, _ in work}
            for req in view.running:
                if req not in ran:
                    idle.setdefault(req, self._last)
        self._last = view.now
        self._promote(view)

    def left(self, req: RequestView, status: Status) -> None:
        self._idle.pop(req, None)
        self._level.pop(req.id, None)
        self._sinks.pop(req.id, None)

    def quiet(self, view: View) -> Quiet:
        """Until somebody sinks or starves, which matters only if somebody waits or is paused."""
        if not view.waiting and view.slots_left > 0 and view.tokens_left > 0 and view.free_blocks > 0:
            return FOREVER
        starves = next(iter(self._idle.values()), self._last) + self.starvation  # if nobody is idle, somebody may be from now on
        return Quiet(min(self._sinks[req.id] - req.emitted for req in view.running), starves)

    def _put(self, req: RequestView, level: int, emitted: int) -> None:
        """Let `req` begin a level with so many tokens emitted."""
        self._level[req.id] = level
        self._sinks[req.id] = emitted + (self.quantum << level) if level < self.levels - 1 else sys.maxsize

    def _promote(self, view: View) -> None:
        """Those who have starved go to the top, the oldest first, and are counted from now on."""
        for req in [req for req, _ in takewhile(lambda item: item[1] + self.starvation <= view.now, self._idle.items())]:
            self._idle[req] = view.now
            self._idle.move_to_end(req)
            self._put(req, 0, req.emitted)
            if req in view.waiting:
                view.waiting.refresh(req)


CHOICES = {"mlfq": MLFQ}
