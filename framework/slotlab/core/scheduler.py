"""Turns what the plugins prefer into steps that are always possible."""

from __future__ import annotations

import sys
from itertools import chain

from slotlab.core.answers import whole
from slotlab.core.blocks import BlockPool
from slotlab.core.books import Books, Plugins
from slotlab.core.planning import Planning
from slotlab.core.unserved import unserved
from slotlab.errors import PluginError, blame
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption
from slotlab.plan import Plan, Result, split_work
from slotlab.request import Request, RequestState, RequestView, Status
from slotlab.view import View


class Scheduler:
    """`submit` requests; then `plan` a step, have an engine execute it, and `commit` the result, over and over.

    `max_context`: most tokens that the model can attend to. `max_bypass`: most requests that may start past one that was
    skipped. `patience`: steps without a new token until the run is an error. `log_decisions`: plans say who got nothing, and why.
    """

    def __init__(
        self,
        pool: BlockPool,
        policy: Policy | None = None,
        batching: Batching | None = None,
        admission: Admission | None = None,
        preemption: Preemption | None = None,
        predictor: Predictor | None = None,
        *,
        max_context: int = sys.maxsize,
        max_bypass: int = 1000,
        patience: int = 10_000,
        log_decisions: bool = False,
    ) -> None:
        self.plugins = Plugins(
            policy or Policy(),
            batching or Batching(),
            admission or Admission(),
            preemption or Preemption(),
            predictor or Predictor(),
        )
        self.books = Books(pool, self.plugins)
        self.max_context, self.max_bypass, self.patience = max_context, max_bypass, patience
        self.log_decisions = log_decisions
        self.in_flight: Plan | None = None
        self.copies_due: dict[RequestState, list[int]] = {}  # blocks of victims that no executed plan has copied out yet
        self.arrivals = self.fruitless = 0

    @property
    def view(self) -> View:
        """What plugins see."""
        return self.books.view

    @property
    def unfinished(self) -> bool:
        """Whether any submitted request has not left."""
        return bool(self.books.running or self.books.waiting or self.books.held)

    def submit(self, req: Request, now: float, truth: int | None = None) -> RequestState:
        """Queue a request, or hold it, or reject it: `status` says which. `truth` is for an oracle predictor only."""
        self.view.now, self.fruitless = now, 0
        with blame(*self.plugins):
            predictor = self.plugins.predictor
            estimate = whole(predictor, "predict", req, predictor.predict(req, truth if predictor.oracle else None))
            state = RequestState.of(req, self.arrivals, min(max(1, estimate), req.max_tokens), now)
            self.arrivals += 1
            if reason := self._never_fits(state):
                self.books.reject(state, reason)
            else:
                self.books.arrive(state)
        return state

    def _never_fits(self, req: RequestState) -> str | None:
        """Why `req` might block the queue for ever, if it might."""
        pool, most = self.books.pool, req.most_tokens
        if most > self.max_context:
            return f"prompt {req.prompt_tokens} + max_tokens {req.max_tokens} exceed the context of {self.max_context}"
        if pool.blocks_for(most) > pool.num_blocks:
            return f"needs {pool.blocks_for(most)} KV blocks of {pool.num_blocks}"
        return None

    def departed(self) -> list[RequestState]:
        """Those who finished, were rejected or were aborted since this was last asked."""
        gone, self.books.departed = self.books.departed, []
        return gone

    def abort(self, req: RequestState) -> None:
        """Between steps only: an engine may be writing to the blocks of a planned request."""
        assert self.in_flight is None, "abort must wait for the step in flight"
        with blame(*self.plugins):
            self.books.abort(req)
        self.copies_due.pop(req, None)

    def plan(self, now: float) -> Plan:
        """The next step. Empty: nothing can run before an arrival, or before `plan.until`."""
        assert self.in_flight is None, "the last plan was not committed"
        self.view.now = now
        preempted = 0
        with blame(*self.plugins):
            self.books.keep_time()
            planning = Planning(self.books, self.max_bypass)
            while not (plan := planning.build()) and plan.preempted:
                preempted += plan.preempted  # all it did was to evict, so now there is room
                self.copies_due |= plan.swap_out
                planning = Planning(self.books, self.max_bypass)
            if plan and self.plugins.pads:
                batching = self.plugins.batching
                plan.padding = max(0, whole(batching, "padding", None, batching.padding(plan.tokens.values(), self.view)))
            if self.log_decisions:
                plan.unserved = list(unserved(planning))
            if not (plan or plan.until > now):
                raise PluginError(self.plugins.batching, None, f"gate is closed until {plan.until}, and it is {now} already")
        if preempted:
            plan.preempted, plan.repeat = plan.preempted + preempted, 1
        if self.copies_due or not plan:
            plan.swap_out = self.copies_due | plan.swap_out
            self.copies_due = {} if plan else plan.swap_out
        if plan:
            self.in_flight = plan
            self.view.step += 1
        else:
            self._watchdog(plan, 0, 1)  # a rest; endless ones are an error too
        return plan

    def commit(self, plan: Plan, result: Result, now: float) -> None:
        """Enter what the engine did."""
        assert plan is self.in_flight, "a plan is committed once, and before the next one is made"
        books, steps, watches = self.books, len(result.durations), self.plugins.watches
        self.view.now, self.view.step, self.in_flight = now, self.view.step + steps - 1, None
        finished = list(result.stopped)
        work: list[tuple[RequestView, int, int]] = []
        fresh = 0
        for (req, n), emitted in zip(plan.tokens.items(), result.emitted, strict=True):
            new = 0
            if req.emitted and req not in books.prefilling:  # a decode
                req.computed += n * steps
                if req.computed > req.capacity:
                    books.pool.grow(req, req.computed)
            else:
                fresh += (new := self._advance(req, n, emitted))
            req.emitted += emitted
            if req.emitted >= req.max_tokens and req not in finished:
                finished.append(req)
            if watches:
                work.append((req, new, emitted))
        self.view.prefill_clock += fresh
        self._watchdog(plan, fresh + sum(result.emitted), steps)
        with blame(*self.plugins):
            if watches:
                self.plugins.policy.served(work, steps)
            for req in finished:
                books.stop(req)
                books.leave(req, Status.FINISHED)

    def _advance(self, req: RequestState, n: int, emitted: int) -> int:
        """Enter a chunk; return how many of its tokens are prompt tokens computed for the first time."""
        fresh, again, _ = split_work(req, n)
        req.computed += n
        req.recomputed += again
        self.books.pool.seal(req)
        complete = req.computed == req.known
        assert complete == (emitted > 0), f"request {req.id}: a token comes out exactly when all known tokens are computed"
        if complete:
            self.books.prefilling.pop(req, None)
        return fresh

    def _watchdog(self, plan: Plan, progress: int, steps: int) -> None:
        self.fruitless = 0 if progress else self.fruitless + steps
        if self.fruitless > self.patience:
            raise self.stuck(plan, f"{self.fruitless} steps and rests computed nothing new")

    def stuck(self, plan: Plan, what: str) -> PluginError:
        """What is wrong, the plugin that most likely did it, and the first request that suffers."""
        books, plugins = self.books, self.plugins
        plugin: object = plugins.admission
        if plan.started and plan.preempted:  # they displace each other
            plugin = plugins.policy
        elif books.running:  # they evict each other, or nobody gives way
            starved = not plan and (plugins.quotas or not plan.seated or self.view.tokens_left <= 0)
            plugin = plugins.batching if starved else plugins.preemption
        elif books.waiting:
            plugin = {"none": plugins.policy, "kv": plugins.admission}.get(plan.bound, plugins.batching)
        head = next(chain(books.running, books.waiting, (req for *_, req in books.held)), None)
        return PluginError(plugin, head, what)
