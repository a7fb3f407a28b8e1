"""A plan under construction: what was given to whom, so that all of it can be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from slotlab.core.answers import expect, whole
from slotlab.core.books import Books
from slotlab.decisions import Misfit, Mode, StepBudget, Verdict
from slotlab.plan import Plan
from slotlab.request import RequestState, Status


class Draft:
    """Gives tokens and slots, and takes them back with everything that hangs on them. Decides nothing."""

    __slots__ = (
        "before",
        "books",
        "budget",
        "evicted",
        "passed",
        "paused",
        "plan",
        "plugins",
        "pool",
        "refused",
        "slots",
        "started",
        "view",
    )

    def __init__(self, books: Books) -> None:
        self.books, self.plugins, self.pool, self.view = books, books.plugins, books.pool, books.view
        self.plan = Plan(self.view.now)
        self.evicted: list[RequestState] = []
        self.started: dict[RequestState, tuple[int, int]] = {}  # and its tokens in host memory, and of prefix hits, before
        self.passed: dict[RequestState, Sequence[RequestState]] = {}  # whom a started one passed over, if anybody
        self.refused: dict[RequestState, tuple[Misfit, Verdict]] = {}  # who was asked and did not fit
        self.before = self.view.last_start
        self.paused: dict[RequestState, None] = {}  # running, but without a slot
        batching = self.plugins.batching
        self.budget = expect(batching, "budget", batching.budget(self.view), StepBudget)
        slots, tokens = (whole(batching, "budget", None, n) for n in (self.budget.slots, self.budget.tokens))
        self.slots = max(0, min(slots, batching.max_num_seqs))
        self.view.slots_left, self.view.tokens_left = self.slots, min(tokens, batching.max_num_batched_tokens)

    def take(self, req: RequestState, n: int) -> None:
        """`n` tokens of the step for `req`, whose blocks suffice."""
        self.plan.tokens[req] = n
        self.view.tokens_left -= n

    def take_all(self, reqs: Sequence[RequestState]) -> bool:
        """One token for each of these decodes, or nothing for any and False: most steps are no more than this."""
        pool = self.pool
        if self.plan or len(reqs) > self.view.tokens_left:
            return False
        short = [req for req in reqs if req.computed == req.capacity]
        if len(short) > pool.available:
            return False
        for req in short:
            pool.grow(req, req.computed + 1)
        self.plan.tokens = dict.fromkeys(reqs, 1)
        self.view.tokens_left -= len(reqs)
        return True

    def start(self, req: RequestState, cached: int, n: int, back: bool) -> None:
        """A slot and `n` tokens for a waiting request; its blocks are already taken. `back`: it returns from host memory."""
        if back:
            self.plan.swap_in[req] = req.blocks[: self.pool.blocks_for(cached)]
        self.started[req] = req.swapped, req.cached
        self.view.slots_left -= 1
        self.books.start(req, cached)
        self.take(req, n)
        self.plugins.policy.started(req, cached)

    def evict(self, req: RequestState, mode: Mode) -> None:
        """Undo whatever this step gave `req`, take its KV, and queue it again once the step is planned."""
        self.view.tokens_left += self.plan.tokens.pop(req, 0)
        if req in self.paused:
            del self.paused[req]
        else:
            self.view.slots_left += 1
        computed, blocks = req.computed, req.blocks[: self.pool.blocks_for(req.computed)]
        if req in self.started:
            req.computed = 0  # what was to be copied into its blocks is not there: no prefix cache may take note of them
        self.books.stop(req)
        lost = 0
        if req in self.started:  # it has done nothing yet: as if it had never started
            req.swapped, req.cached = self.started.pop(req)
            self.plan.swap_in.pop(req, None)
            if not req.preemptions:
                req.started = None
            if not self.started:
                self.view.last_start = self.before
            for loser in self.passed.pop(req, ()):
                loser.bypassed -= 1
        else:
            req.swapped = computed if mode is Mode.SWAP else 0
            lost = computed - req.swapped
            if req.swapped:
                self.plan.swap_out[req] = blocks
            req.high = max(req.high, computed)
            req.preemptions += 1
            self.plan.preempted += 1
        req.status = Status.PREEMPTED if req.preemptions else Status.WAITING
        self.evicted.append(req)
        self.plugins.policy.preempted(req, lost)
