"""Plugins of every kind, the built-in ones and some that do what no built-in does yet, and how to draw compositions of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st

from slotlab import (
    Accept,
    Admission,
    Batching,
    Closed,
    Evict,
    Hold,
    Key,
    Misfit,
    Mode,
    Need,
    Open,
    Phase,
    Policy,
    Preemption,
    Quiet,
    Reject,
    RequestView,
    StepBudget,
    Verdict,
    View,
)
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.static import Static
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.predictors.basic import NoPredictor, Oracle
from slotlab_plugins.preemption.victims import LowestRank, Newest


@dataclass
class Foreground(Policy):
    """Whoever has emitted little goes first and keeps its slot; the others are paused while anybody waits (as MLFQ)."""

    quantum: int = 3

    def level(self, req: RequestView) -> int:
        return req.emitted // self.quantum

    def lane(self, req: RequestView) -> Hashable:
        return self.level(req)

    def key(self, req: RequestView) -> Key:
        return self.level(req), req.arrival

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        level = min((self.level(req) for req in [*running, *view.waiting]), default=0)
        return [req for req in reversed(running) if self.level(req) <= level]


@dataclass
class Backfill(Policy):
    """Skips whoever does not fit."""

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.SKIP


@dataclass
class Pushy(Priority):
    """Skips what cannot displace, displaces what it can, and pauses the worst class while others wait."""

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT if why in (Misfit.SLOTS, Misfit.BLOCKS) else Verdict.SKIP

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        return [req for req in running if req.priority < 3 or not view.waiting]

    def quiet(self, view: View) -> Quiet:
        return Quiet(steps=1)


@dataclass
class Phased(Batching):
    """Any phase, with or without chunks, with a cap on prefills."""

    phase: Phase = Phase.MIXED
    chunked: bool = True
    prefills: int = 2

    def budget(self, view: View) -> StepBudget:
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens, self.phase, self.prefills, self.chunked)


@dataclass
class Quotas(Batching):
    """Chunks of three tokens; all but the first to get any idle in every third step."""

    def quota(self, req: RequestView, left: int, view: View) -> int:
        alone = view.tokens_left == self.max_num_batched_tokens
        return 0 if (req.seq + view.step) % 3 == 0 and not alone else 3


@dataclass
class Grouped(Batching):
    """Joins by twos while somebody runs, and not before five steps after the last start (as TGI)."""

    def gate(self, view: View) -> Open | Closed:
        if view.running and view.step - view.last_start < 5:
            return Closed()
        return Open(max_new=3, min_new=2) if view.running else Open()

    def quiet(self, view: View) -> Quiet:
        waited = view.step - view.last_start
        return Quiet(steps=5 - waited) if waited < 5 else Quiet()


@dataclass
class Windowed(Batching):
    """Opens at whole multiples of half a second, when nothing runs (as Triton's dynamic batcher)."""

    def gate(self, view: View) -> Open | Closed:
        if view.running:
            return Closed()
        due = math.ceil(view.waiting.oldest().arrival * 2) / 2
        return Open() if view.now >= due else Closed(wake_at=due)


@dataclass
class Chunk(Admission):
    """Commits no more than the first chunk."""

    def reserve(self, req: RequestView, view: View) -> int | None:
        return 0


@dataclass
class ReserveMax(Admission):
    """Commits all that a request may ever need (Orca)."""

    def reserve(self, req: RequestView, view: View) -> int | None:
        return req.prompt_tokens + req.max_tokens


@dataclass
class Capricious(Admission):
    """Holds some, rejects some, and commits by a view that changes while a displacement goes on."""

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        if req.seq % 7 == 6:
            return Reject("unlucky")
        return Hold(req.arrival + 0.7) if req.seq % 3 == 1 and view.now < req.arrival + 0.7 else Accept()

    def reserve(self, req: RequestView, view: View) -> int | None:
        return len(view.running) * 3 if len(view.running) < 3 or req.seq % 2 else None


@dataclass
class Swapper(Preemption):
    """Copies the least urgent to host memory; recomputes those of odd number."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        worst = sorted(candidates, key=lambda req: (view.rank(req), req.seq), reverse=True)
        return [Evict(req, Mode.RECOMPUTE if req.id % 2 else Mode.SWAP) for req in worst]


POLICIES: dict[str, Callable[[], Policy]] = {
    "fcfs": FCFS,
    "sjf": SJF,
    "sjf_aging": lambda: SJF(aging=5.0),
    "priority": Priority,
    "priority_aging": lambda: Priority(aging=0.5),
    "priority_displace": lambda: Priority(displace=True),
    "priority_displace_aging": lambda: Priority(aging=2.0, displace=True),
    "vtc": VTC,
    "vtc_prices": lambda: VTC(input_price=3, output_price=1),
    "foreground": Foreground,
    "backfill": Backfill,
    "pushy": Pushy,
}
BATCHINGS: dict[str, Callable[[int], Batching]] = {
    "static": lambda slots: Static(slots, 512),
    "continuous": lambda slots: Continuous(slots, 512),
    "tight": lambda slots: Continuous(slots, 5),
    "tighter": lambda slots: Continuous(slots, 1),
    "decode_first": lambda slots: Phased(slots, 8, Phase.DECODE_FIRST),
    "prefill_first": lambda slots: Phased(slots, 16, Phase.PREFILL_FIRST),
    "prefill_only": lambda slots: Phased(slots, 16, Phase.PREFILL_ONLY),
    "whole": lambda slots: Phased(slots, 512, Phase.PREFILL_ONLY, chunked=False),
    "whole_mixed": lambda slots: Phased(slots, 512, chunked=False, prefills=1),
    "quotas": lambda slots: Quotas(slots, 32),
    "grouped": lambda slots: Grouped(slots, 64),
    "windowed": lambda slots: Windowed(slots, 64),
}
ADMISSIONS: dict[str, Callable[[], Admission]] = {
    "prompt": Prompt,
    "watermark": lambda: Prompt(watermark=0.2),
    "chunk": Chunk,
    "reserve_max": ReserveMax,
    "capricious": Capricious,
}
PREEMPTIONS: dict[str, Callable[[], Preemption]] = {"newest": Newest, "lowest_rank": LowestRank, "swapper": Swapper}
PREDICTORS = {"none": NoPredictor, "oracle": Oracle}

KINDS: tuple[dict[str, Any], ...] = (POLICIES, BATCHINGS, ADMISSIONS, PREEMPTIONS, PREDICTORS)


@pytest.fixture(scope="session")
def compositions() -> st.SearchStrategy[tuple[str, ...]]:
    """The names of a policy, a batching, an admission, a preemption and a predictor."""
    return st.tuples(*(st.sampled_from(list(kind)) for kind in KINDS))


@pytest.fixture(scope="session")
def build() -> Callable[[Sequence[str], int], dict[str, Any]]:
    """Plugins by name, with so many slots, as keyword arguments of a scheduler."""

    def make(names: Sequence[str], slots: int) -> dict[str, Any]:
        policy, batching, admission, preemption, predictor = names
        return {
            "policy": POLICIES[policy](),
            "batching": BATCHINGS[batching](slots),
            "admission": ADMISSIONS[admission](),
            "preemption": PREEMPTIONS[preemption](),
            "predictor": PREDICTORS[predictor](),
            "max_bypass": 3,
            "patience": 1000,
        }

    return make
