"""Which request sat in which slot, step by step: the lowest free slot first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slotlab.plan import Plan, split_work
from slotlab.request import RequestState, Status


@dataclass
class Seats:
    """Counts held slots; with `chart`, also writes down who holds which (for small runs).

    `keeps`: a slot stays held until the whole batch has ended, as under static batching.
    """

    keeps: bool = False
    chart: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    seats: dict[int, RequestState] = field(default_factory=dict)
    batch: int = 0

    def held(self, plan: Plan) -> int:
        """Slots held in this step."""
        if not self.keeps:
            return len(plan.seated)
        fresh = plan.started == plan.running
        self.batch = len(plan.seated) if fresh else max(self.batch, len(plan.seated))
        return self.batch

    def step(self, step: int, plan: Plan, count: int) -> None:
        """Enter `count` equal steps from `step` on."""
        if not self.chart:
            return
        self._assign(plan)
        rows = []
        for slot, req in sorted(self.seats.items()):
            kind, tokens = work_of(req, plan.tokens.get(req, 0))
            rows.append({"slot": slot, "request": req.id, "kind": kind, "tokens": tokens})
        self.rows += ({"step": step + i, **row} for i in range(count) for row in rows)

    def _assign(self, plan: Plan) -> None:
        seated = dict.fromkeys(plan.seated)
        if not self.keeps or plan.started == plan.running:
            self.seats = {slot: req for slot, req in self.seats.items() if req in seated}
        taken = set(self.seats.values())
        free = (slot for slot in range(len(seated) + len(taken)) if slot not in self.seats)
        for req in seated:
            if req not in taken:
                self.seats[next(free)] = req


def work_of(req: RequestState, n: int) -> tuple[str, int]:
    """What `n` tokens of `req` are, for a chart."""
    if n == 0 or req.status is not Status.RUNNING:
        return "held", 0
    first, again, _ = split_work(req, n)
    return ("prefill" if first else "recompute" if again else "decode"), n
