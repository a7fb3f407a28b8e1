"""What happened: one row per request, one per step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slotlab.plan import Plan, Result, split_work
from slotlab.record.seats import Seats
from slotlab.request import RequestState, Status

Row = dict[str, Any]


@dataclass
class Recorder:
    """Collects the rows of one load point and repeat. A jump over k steps leaves the same k rows as k single steps."""

    point: int = 0
    repeat: int = 0
    block_size: int = 16
    predictor: str = "none"
    seats: Seats = field(default_factory=Seats)
    progress: Callable[[int], None] = lambda finished: None  # called with the number of requests that have just ended

    def __post_init__(self) -> None:
        self.states: list[RequestState] = []
        self.times: dict[int, list[float]] = {}
        self.steps: list[Row] = []  # one per plan, with arrays where a plan had several steps
        self.hosts: list[Row] = []
        self.decisions: list[Row] = []  # who got no token, and why, if the scheduler says so; one per plan and request
        self.remarks: dict[str, str] = {}  # what changes the meaning of this point, by a short key
        self.ended_early = False  # at the load's `max_seconds`
        self.count = self.latest = 0
        self.under_way: deque[tuple[Row, list[RequestState], float]] = deque()  # with whom they serve, and when they were planned
        self.last_end = 0.0
        self.starts: dict[int, float] = {}  # of those who were given a slot before the step in which they have it began

    def submitted(self, req: RequestState) -> None:
        """`req` was handed to the scheduler."""
        self.states.append(req)
        self.times[req.id] = []

    def step(self, plan: Plan, result: Result, ends: Sequence[float]) -> None:
        """A plan was executed, and is not committed yet: blocks and counts are as the engine saw them."""
        self.begun(plan, len(ends))
        self.ended(result, ends)

    def begun(self, plan: Plan, steps: int = 1) -> None:
        """A plan is being executed, and is not committed yet."""
        self.under_way.append((self._row(plan, steps), list(plan.tokens), plan.time))
        self.seats.step(self.count, plan, steps)
        for req, reason in plan.unserved:
            self.decisions.append({"step": self.count, "steps": steps, "request": req.id, "reason": reason})
        self.latest = self.count
        self.count += steps

    def ended(self, result: Result, ends: Sequence[float]) -> None:
        """The plan that began first has been executed. A step begins at its plan's time, or when the one before it ends."""
        row, reqs, planned = self.under_way.popleft()
        start = max(planned, self.last_end)
        durations = result.durations
        if start > planned:  # it was in flight behind the one before it
            self.starts |= {req.id: start for req in reqs if req.started == planned}
            durations = [ends[0] - start]
        self.steps.append({**row, "start": [start, *ends[:-1]], "duration": durations})
        self.last_end = ends[-1]
        for req, emitted in zip(reqs, result.emitted, strict=True):
            if emitted:
                self.times[req.id] += ends
        if result.stopped:
            self.progress(len(result.stopped))

    def _row(self, plan: Plan, steps: int) -> Row:
        decode = prefill = recomputed = 0
        for req, n in plan.tokens.items():
            if n == 1 and req.emitted and req.remaining == 1:
                decode += 1
            else:
                first, again, other = split_work(req, n)
                prefill, recomputed, decode = prefill + first, recomputed + again, decode + other
        used, reserved = self._blocks(plan, steps)
        return {
            "step": self.count,
            "decode_tokens": decode,
            "prefill_tokens": prefill,
            "recomputed_tokens": recomputed,
            "computing": len(plan.tokens),
            "held": self.seats.held(plan),
            "running": plan.running,
            "waiting": plan.waiting,
            "kv_used": used,
            "kv_reserved": reserved,
            "padding_tokens": plan.padding,
            "swapped_blocks": plan.swapped_blocks,
            "preempted": plan.preempted,
            "started": plan.started,
            "bound": plan.bound,
        }

    def _blocks(self, plan: Plan, steps: int) -> tuple[Any, Any]:
        """Blocks that hold computed tokens, and blocks allocated, at the end of each step; numbers if there was one."""
        size = self.block_size  # what is not computed yet is nobody else's, so shared blocks count once
        empty = sum(len(req.blocks) - -(-(req.computed + n) // size) for req, n in plan.tokens.items())
        if plan.running > len(plan.tokens):
            idle = (req for req in (*plan.seated, *plan.paused) if req not in plan.tokens)
            empty += sum(len(req.blocks) - -(-req.computed // size) for req in idle)
        used = plan.kv_reserved - empty
        if steps == 1:
            return used, plan.kv_reserved
        computed = np.fromiter((req.computed + 1 for req in plan.tokens), np.int64, len(plan.tokens))
        capacity = np.fromiter((req.capacity for req in plan.tokens), np.int64, len(plan.tokens))
        return used + crossings(-computed % size, steps, size), plan.kv_reserved + crossings(capacity - computed, steps, size)

    def host(self, plan: float, engine: float, commit: float) -> None:
        """Seconds of wall time that the last plan took: to make it, to execute it, to enter it."""
        self.hosts.append({"step": self.latest, "plan_ms": plan * 1e3, "engine_ms": engine * 1e3, "commit_ms": commit * 1e3})

    def requests(self) -> list[Row]:
        """One row per submitted request, in the order of submission; a request still under way counts as aborted."""
        return [self._request(req) for req in self.states]

    def _request(self, req: RequestState) -> Row:
        times = self.times[req.id]
        ended = req.status in (Status.FINISHED, Status.REJECTED)
        return {
            "point": self.point,
            "repeat": self.repeat,
            "id": req.id,
            "seq": req.seq,
            "tenant": req.tenant,
            "priority": req.priority,
            "deadline": req.deadline,
            "scheduled_arrival": req.arrival,
            "submitted": req.submitted,
            "started": self.starts.get(req.id, req.started),
            "first_token": times[0] if times else None,
            "finish": times[-1] if req.status is Status.FINISHED else None,
            "status": (req.status if ended else Status.ABORTED).value,
            "reason": req.reason,
            "prompt_tokens": req.prompt_tokens,
            "max_tokens": req.max_tokens,
            "output_tokens": req.emitted,
            "cached_tokens": req.cached,
            "predicted_output": req.predicted_output,
            "predictor": self.predictor,
            "preemptions": req.preemptions,
            "recomputed_tokens": req.recomputed,
            "bypassed": req.bypassed,
            "token_times": times,
        }


def crossings(first: np.ndarray[Any, Any], steps: int, size: int) -> np.ndarray[Any, Any]:
    """Blocks added by step j = 0 .. steps - 1, if request i needs one at step `first[i] + 1` and at every `size`-th after it."""
    added = np.bincount(first[first + 1 < steps] + 1, minlength=steps).astype(np.int64)
    for j in range(size, steps, size):
        width = min(size, steps - j)
        added[j : j + width] += added[j - size : j - size + width]
    return np.cumsum(added)
