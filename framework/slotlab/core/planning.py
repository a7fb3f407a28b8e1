"""One step being planned.

Nothing a plugin returns can break the books: blocks are checked before they are taken, a victim leaves the plan with
everything it was given, and answers are clamped, or refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from slotlab.core.answers import claim, expect, moment, whole
from slotlab.core.books import Books
from slotlab.core.draft import Draft
from slotlab.core.quiet import allow_repeats
from slotlab.decisions import Closed, Evict, Misfit, Mode, Need, Open, Phase, Verdict
from slotlab.errors import PluginError
from slotlab.plan import Bound, Plan
from slotlab.request import RequestState
from slotlab.view import View

BOUNDS: dict[Misfit, Bound] = {
    Misfit.SLOTS: "slots",
    Misfit.TOKENS: "tokens",
    Misfit.PREFILLS: "tokens",
    Misfit.BLOCKS: "kv",
    Misfit.RESERVE: "kv",
}


class Wants(NamedTuple):
    """What a waiting request would start with."""

    hits: Sequence[int]  # blocks that it shares
    cached: int  # tokens already computed, by others or before a swap
    n: int  # tokens for this step
    commit: int  # tokens of KV, all told


class Planning(Draft):
    """Running requests first, then waiting ones, as far as slots, tokens and blocks allow."""

    __slots__ = ("max_bypass",)

    def __init__(self, books: Books, max_bypass: int) -> None:
        super().__init__(books)
        self.max_bypass = max_bypass

    def build(self) -> Plan:
        """Decide, and return the plan."""
        self._fill(self._seat())
        plan, books = self.plan, self.books
        for req in self.evicted:
            books.waiting.add(req)
        plan.until = min(plan.until, books.next_time())
        plan.seated = [req for req in books.running if req not in self.paused] if self.paused else list(books.running)
        plan.paused = list(self.paused)
        plan.running, plan.waiting = len(books.running), len(books.waiting)
        plan.kv_reserved = self.pool.num_blocks - self.pool.available
        plan.started = len(self.started)
        plan.decodes = not books.prefilling
        if plan and not (books.prefilling or self.evicted or self.started):
            allow_repeats(plan, books, self.refused)
        return plan

    def _fill(self, running: list[RequestState]) -> None:
        """Hand out the step in the order of the budget's phase."""
        books, phase = self.books, self.budget.phase
        prefills = [req for req in running if req in books.prefilling] if books.prefilling else []
        decodes = [req for req in running if req not in books.prefilling] if prefills else running
        if phase is Phase.MIXED:
            self._continue(running, all_decode=not prefills)
            self._start()
        elif phase is Phase.DECODE_FIRST:
            self._continue(decodes, all_decode=True)
            self._continue(prefills)
            self._start()
        else:
            self._continue(prefills)
            self._start()
            if phase is Phase.PREFILL_FIRST or not self.plan:
                self._continue(decodes, all_decode=True)
        if self.paused and not (phase is Phase.PREFILL_ONLY and books.prefilling.keys() & self.plan.tokens.keys()):
            self._resume_paused()

    # Running requests

    def _seat(self) -> list[RequestState]:
        """Those that keep their slots, in the policy's order. Whoever it leaves out is paused: KV, but no slot."""
        running = list(self.books.running)
        if self.plugins.pauses:
            policy, self.paused = self.plugins.policy, dict.fromkeys(running)
            order = expect(policy, "order_running", policy.order_running(running, self.view), Iterable)
            running = [claim(policy, "order_running", req, self.paused) for req in order]
        if len(running) > self.slots:
            self.paused |= dict.fromkeys(running[self.slots :])
            del running[self.slots :]
        self.view.slots_left -= len(running)
        return running

    def _resume_paused(self) -> None:
        """Slots that nobody took go to paused requests."""
        for req in list(self.paused):
            if self.view.slots_left > 0 and req in self.paused:  # not evicted for the one before
                self._continue([req])
                if req in self.plan.tokens:
                    del self.paused[req]
                    self.view.slots_left -= 1

    def _continue(self, reqs: Sequence[RequestState], all_decode: bool = False) -> None:
        """Give running requests their tokens, evicting others where the KV runs out."""
        view, running = self.view, self.books.running
        if all_decode and not (self.plugins.quotas or self.evicted) and self.take_all(reqs):
            return
        for req in reqs:
            if view.tokens_left <= 0:
                break
            if req not in running:  # evicted for one before it
                continue
            n = self._size(req, req.remaining)
            if n > 0 and (req.computed + n <= req.capacity or self._make_room(req, n)):
                self.take(req, n)

    def _size(self, req: RequestState, left: int) -> int:
        n, batching = min(left, self.view.tokens_left), self.plugins.batching
        return min(n, whole(batching, "quota", req, batching.quota(req, n, self.view))) if self.plugins.quotas else n

    # Waiting requests

    def _start(self) -> None:
        """Let waiting requests join, in the policy's order, until one does not fit."""
        if not self.books.waiting:
            return
        if self.evicted or (self.view.slots_left <= 0 and not self.plugins.contests):
            self.plan.bound = "kv" if self.evicted else "slots"
            return
        gate = expect(self.plugins.batching, "gate", self.plugins.batching.gate(self.view), Open, Closed)
        if isinstance(gate, Closed):
            self.plan.until, self.plan.bound = moment(self.plugins.batching, "gate", gate.wake_at), "gate"
            return
        self._admit(gate)
        if len(self.started) < gate.min_new and not self.evicted:  # nobody is evicted for nothing
            self.plan.bound = "gate"
            for req in reversed(list(self.started)):
                self.evict(req, Mode.RECOMPUTE)

    def _admit(self, gate: Open) -> None:
        policy, skipped = self.plugins.policy, dict[RequestState, None]()
        for req in expect(policy, "order", policy.order(self.books.waiting, self.view), Iterable):
            if not isinstance(req, RequestState) or req not in self.books.waiting or req in skipped:
                raise PluginError(policy, req, "order named it twice, or it is not waiting")
            if len(self.started) >= gate.max_new or (self.evicted and not self._outranks_evicted(req)):
                self.plan.bound = "kv" if self.evicted else "gate"
                return
            why = self._try_start(req)
            verdict = self._verdict(req, why) if why and self.plugins.contests else Verdict.STOP
            enough = len(self.started) + 1 >= gate.min_new
            if why is None or (verdict is Verdict.PREEMPT and enough and self._displace(req, why)):
                if not skipped:
                    self.plan.bound = "none"
                elif not self._pass_over(skipped, req):
                    return
                continue
            self.plan.bound = BOUNDS[why]
            if verdict is Verdict.SKIP and req.bypassed < self.max_bypass:
                skipped[req] = None
                self.refused[req] = why, verdict
            else:
                self.refused[req] = why, Verdict.STOP
                return

    def _verdict(self, req: RequestState, why: Misfit) -> Verdict:
        policy = self.plugins.policy
        return expect(policy, "on_misfit", policy.on_misfit(req, why, self.view), Verdict)

    def _pass_over(self, skipped: Iterable[RequestState], req: RequestState) -> bool:
        """`req` started before those who were skipped; whether one more may."""
        self.passed[req] = list(skipped)
        for loser in skipped:
            loser.bypassed += 1
        return all(loser.bypassed < self.max_bypass for loser in skipped)

    def _wants(self, req: RequestState, view: View) -> Wants | Misfit:
        """What `req` would start with, `view` being what admission sees."""
        hits, cached = self.pool.found(req)
        left = req.known - cached
        n = self._size(req, left)
        if n <= 0 or (n < left <= self.plugins.batching.max_num_batched_tokens and not self.budget.chunked):
            return Misfit.TOKENS
        if left > 1 and len(self.books.prefilling) >= self.budget.prefills:
            return Misfit.PREFILLS
        admission = self.plugins.admission
        commit = admission.reserve(req, view)
        if commit is None:
            return Misfit.RESERVE
        return Wants(hits, cached, n, max(cached + n, min(whole(admission, "reserve", req, commit), req.most_tokens)))

    def _try_start(self, req: RequestState) -> Misfit | None:
        """Start `req`, or change nothing and say why not."""
        if self.view.slots_left <= 0:
            return Misfit.SLOTS
        wants = self._wants(req, self.view)
        if isinstance(wants, Misfit):
            return wants
        return None if self._grant(req, wants) else Misfit.BLOCKS

    def _grant(self, req: RequestState, wants: Wants) -> bool:
        """Start `req` if there are blocks for what it wants."""
        if enough := self.pool.grow(req, wants.commit, wants.hits):
            self.start(req, wants.cached, wants.n, back=bool(wants.cached and not wants.hits))
        return enough

    # Victims

    def _make_room(self, req: RequestState, n: int) -> bool:
        """Evict until `req` can compute `n` more tokens. False: it cannot, or it was evicted itself."""
        pool, goal = self.pool, req.computed + n
        if pool.grow(req, goal):
            return True
        for victim, mode in self._victims(Need(pool.shortage(req, goal)), req, list(self.books.running)):
            self.evict(victim, mode)
            if victim is req:
                return False
            if pool.grow(req, goal):
                return True
        return False

    def _displace(self, req: RequestState, why: Misfit) -> bool:
        """Evict running requests of strictly worse rank than `req` if that lets it start; else change nothing."""
        wants, hits = self._wants(req, self.view), self.pool.found(req)[0]
        if wants in (Misfit.TOKENS, Misfit.PREFILLS):
            return False
        need = Need(self._lack(req, wants, hits), int(why is Misfit.SLOTS))
        chosen, taken, blocks, slots = dict[RequestState, Mode](), Counter[int](), 0, 0
        for victim, mode in self._victims(need, req, self._worse(req)):
            chosen[victim] = mode
            blocks += self.pool.gain(victim, taken, hits)
            slots += victim not in self.paused
            wants = self._wants(req, self.view.without(chosen, blocks)) if slots >= need.slots else why
            if isinstance(wants, Wants) and self.pool.shortage(req, wants.commit, hits) <= blocks:
                break
        else:
            return False
        for victim, mode in chosen.items():
            self.evict(victim, mode)
        n = min(self._size(req, req.known - wants.cached), wants.commit - wants.cached)  # victims may have given tokens back
        promised = self._grant(req, wants._replace(n=max(n, wants.n)))
        assert promised, f"request {req.id} was promised a place that is not there"
        return True

    def _lack(self, req: RequestState, wants: Wants | Misfit, hits: Sequence[int]) -> int:
        """Blocks that `req` lacks, for those who choose victims; at least one if it is refused for a reserve."""
        if isinstance(wants, Wants):
            return max(0, self.pool.shortage(req, wants.commit, hits))
        return max(1, self.pool.shortage(req, req.known, hits))

    def _worse(self, req: RequestState) -> list[RequestState]:
        """Running requests of strictly worse rank than `req`."""
        mine, rank = self.view.rank(req), self.view.rank
        try:
            return [other for other in self.books.running if rank(other) > mine]
        except TypeError as error:
            raise PluginError(self.plugins.policy, req, f"rank answered {mine!r}: {error}") from error

    def _victims(self, need: Need, req: RequestState, candidates: Sequence[RequestState]) -> Iterator[tuple[RequestState, Mode]]:
        plugin, allowed = self.plugins.preemption, dict.fromkeys(candidates)
        for choice in expect(plugin, "victims", plugin.victims(need, req, candidates, self.view), Iterable):
            victim, mode = expect(plugin, "victims", choice, Evict)
            yield claim(plugin, "victims", victim, allowed), expect(plugin, "victims", mode, Mode)

    def _outranks_evicted(self, req: RequestState) -> bool:
        """Whoever gave way must not see a worse one take what it left."""
        rank = self.view.rank
        return bool(rank(req) < min(map(rank, self.evicted)))
