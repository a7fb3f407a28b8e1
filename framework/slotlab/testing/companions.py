"""Plugins for a plugin under test to get on with: the defaults, and awkward ones that use every freedom of the contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from slotlab.decisions import (
    FOREVER,
    Accept,
    Closed,
    Evict,
    Hold,
    Misfit,
    Mode,
    Need,
    Open,
    Phase,
    Quiet,
    Reject,
    StepBudget,
    Verdict,
)
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption
from slotlab.request import Request, RequestView
from slotlab.view import View
from slotlab.waiting import Key


@dataclass
class Displacing(Policy):
    """Lower priority numbers first, and in the place of running ones of higher numbers."""

    def key(self, req: RequestView) -> Key:
        return req.priority

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class Pausing(Policy):
    """Whoever has emitted much is paused while somebody waits or runs who has not."""

    def level(self, req: RequestView) -> int:
        """The class of a request, by threes of output tokens."""
        return req.emitted // 3

    def lane(self, req: RequestView) -> Hashable:
        return self.level(req)

    def key(self, req: RequestView) -> Key:
        return self.level(req), req.arrival

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        least = min(self.level(req) for req in (*running, *view.waiting)) if running else 0
        return [req for req in reversed(running) if self.level(req) <= least]


@dataclass
class Shortest(Policy):
    """Shortest predicted output first: the long may wait for ever."""

    def key(self, req: RequestView) -> Key:
        return req.predicted_output


@dataclass
class Skipping(Policy):
    """Passes over whoever does not fit."""

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.SKIP


@dataclass
class Awkward(Batching):
    """Batching with a budget of any shape."""

    phase: Phase = Phase.MIXED
    prefills: int = 10**6

    def budget(self, view: View) -> StepBudget:
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens, self.phase, self.prefills)

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class Sipping(Batching):
    """Chunks of three tokens; all but the first to get any idle in every third step."""

    def quota(self, req: RequestView, left: int, view: View) -> int:
        alone = view.tokens_left == self.max_num_batched_tokens
        return 0 if (req.seq + view.step) % 3 == 0 and not alone else 3


@dataclass
class Whole(Batching):
    """A batch starts when nothing runs, at even seconds; its slots stay held."""

    keeps_slots: ClassVar[bool] = True

    def gate(self, view: View) -> Open | Closed:
        if view.running:
            return Closed()
        due = 2.0 * math.ceil(view.waiting.oldest().arrival / 2)
        return Open() if view.now >= due else Closed(wake_at=due)

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class Grouped(Batching):
    """Joins by twos while somebody runs, and not before three steps after the last start."""

    def gate(self, view: View) -> Open | Closed:
        if view.running and view.step - view.last_start < 3:
            return Closed()
        return Open(max_new=3, min_new=2) if view.running else Open()


@dataclass
class Greedy(Admission):
    """Commits as little as the core allows."""

    def reserve(self, req: RequestView, view: View) -> int | None:
        return 0

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class Capricious(Admission):
    """Holds some, rejects some, and commits more the more there runs."""

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        if req.seq % 7 == 6:
            return Reject("unlucky")
        return Hold(req.arrival + 1.5) if req.seq % 3 == 1 and view.now < req.arrival + 1.5 else Accept()

    def reserve(self, req: RequestView, view: View) -> int | None:
        return len(view.running) * 3 if len(view.running) < 3 or req.seq % 2 else None


@dataclass
class ByRank(Preemption):
    """Whoever the policy ranks worst gives way."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return map(Evict, sorted(candidates, key=lambda req: (view.rank(req), req.seq), reverse=True))


@dataclass
class Swapping(Preemption):
    """Whoever started last gives way, every other one to host memory."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return [Evict(req, Mode.RECOMPUTE if req.id % 2 else Mode.SWAP) for req in reversed(candidates)]


@dataclass
class Truth(Predictor):
    """The true length."""

    oracle: ClassVar[bool] = True

    def predict(self, req: Request, truth: int | None) -> int:
        return truth or req.max_tokens


POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": Policy,
    "displacing": Displacing,
    "pausing": Pausing,
    "skipping": Skipping,
    "shortest": Shortest,
}
BATCHINGS: dict[str, Callable[[int, int], Batching]] = {
    "continuous": Batching,
    "whole batches": Whole,
    "decodes first": lambda slots, tokens: Awkward(slots, tokens, Phase.DECODE_FIRST),
    "prefills first": lambda slots, tokens: Awkward(slots, tokens, Phase.PREFILL_FIRST, 2),
    "prefills alone": lambda slots, tokens: Awkward(slots, tokens, Phase.PREFILL_ONLY),
    "small chunks": Sipping,
    "groups": Grouped,
}
ADMISSIONS: dict[str, Callable[[], Admission]] = {"prompt": Admission, "chunk": Greedy, "capricious": Capricious}
PREEMPTIONS: dict[str, Callable[[], Preemption]] = {"newest": Preemption, "by rank": ByRank, "swapping": Swapping}
PREDICTORS: dict[str, Callable[[], Predictor]] = {"cap": Predictor, "truth": Truth}
