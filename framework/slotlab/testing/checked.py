"""A scheduler that checks itself."""

from __future__ import annotations

from typing import Any

from slotlab.core.scheduler import Scheduler
from slotlab.plan import Plan, Result, split_work
from slotlab.request import Request, RequestState


class CheckedScheduler(Scheduler):
    """Asserts after every operation that nothing was lost and no cap was exceeded; keeps what the plans came to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans: list[dict[int, int]] = []  # tokens by request id
        self.work = [0, 0, 0]  # tokens planned: computed for the first time, again, decoded

    def submit(self, req: Request, now: float, truth: int | None = None) -> RequestState:
        state = super().submit(req, now, truth)
        self.books.check()
        return state

    def plan(self, now: float) -> Plan:
        plan, batching = super().plan(now), self.plugins.batching
        self.books.check()
        assert len(plan.seated) <= batching.max_num_seqs, "more slots than there are"
        assert plan.tokens.keys() <= set(plan.seated), "a token without a slot"
        assert sum(plan.tokens.values()) <= batching.max_num_batched_tokens, "more tokens than the budget"
        for req, n in plan.tokens.items():
            assert 1 <= n <= req.remaining, f"request {req.id} computes {n} tokens of {req.remaining}"
            assert req.computed + n <= req.capacity, "a token without a block"
        assert len(plan.seated) + len(plan.paused) == plan.running == len(self.books.running), "somebody runs unseen"
        assert plan or not plan.started, "somebody started in a step that computes nothing"
        return plan

    def commit(self, plan: Plan, result: Result, now: float) -> None:
        self.plans += [{req.id: n for req, n in plan.tokens.items()}] * len(result.durations)
        parts = [split_work(req, n) for req, n in plan.tokens.items()]
        self.work = [old + sum(new) * len(result.durations) for old, new in zip(self.work, zip(*parts, strict=True), strict=True)]
        super().commit(plan, result, now)
        self.books.check()

    def abort(self, req: RequestState) -> None:
        super().abort(req)
        self.books.check()
