"""Plugins of every kind, the built-in ones and some that do what no built-in does yet, and how to draw compositions of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
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
from slotlab.testing.fresh import fresh
from slotlab_plugins import collect
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.admission.queue_timeout import QueueTimeout
from slotlab_plugins.admission.rate_limit import RateLimit
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.dynamic import Dynamic
from slotlab_plugins.batching.orca import Orca
from slotlab_plugins.batching.static import Static
from slotlab_plugins.modifiers.aging import Aging
from slotlab_plugins.modifiers.bypass_cap import BypassCap
from slotlab_plugins.modifiers.tenant_cap import TenantCap
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.srpt import SRPT
from slotlab_plugins.policies.vtc import VTC


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


def built_in(folder: str) -> dict[str, Callable[..., Any]]:
    """Makers of the built-in choices of a folder."""
    return {name: partial(fresh, choice) for name, choice in collect(folder).items()}


def batching(choice: type[Batching], slots: int) -> Batching:
    """A built-in batching with so many slots."""
    return choice(slots, 512)


POLICIES: dict[str, Callable[[], Policy]] = {
    **built_in("policies"),
    "sjf_aging": lambda: SJF(aging=5.0),
    "priority_aging": lambda: Priority(aging=0.5),
    "priority_displace_aging": lambda: Priority(aging=2.0, displace=True),
    "vtc_prices": lambda: VTC(input_price=3, output_price=1),
    "srpt_always": lambda: SRPT(c=1.0),
    "capped_fair_share": lambda: TenantCap(2).around(VTC()),
    "aging_backfill": lambda: BypassCap(2).around(Aging(1.0).around(Backfill())),
    "foreground": Foreground,
    "backfill": Backfill,
    "pushy": Pushy,
}
BATCHINGS: dict[str, Callable[[int], Batching]] = {
    **{name: partial(batching, choice) for name, choice in collect("batching").items()},
    "padded": lambda slots: Static(slots, 512, pad=True),
    "window": lambda slots: Dynamic(slots, 64, max_delay=0.5, preferred=[slots]),
    "tight": lambda slots: Continuous(slots, 5),
    "tighter": lambda slots: Continuous(slots, 1),
    "tight_whole": lambda slots: Orca(slots, 5),
    "decode_first": lambda slots: Phased(slots, 8, Phase.DECODE_FIRST),
    "prefill_first_in_chunks": lambda slots: Phased(slots, 16, Phase.PREFILL_FIRST),
    "prefill_only": lambda slots: Phased(slots, 16, Phase.PREFILL_ONLY),
    "whole_mixed": lambda slots: Phased(slots, 512, chunked=False, prefills=1),
    "quotas": lambda slots: Quotas(slots, 32),
    "grouped": lambda slots: Grouped(slots, 64),
}
ADMISSIONS: dict[str, Callable[[], Admission]] = {
    **built_in("admission"),
    "watermark": lambda: Prompt(watermark=0.2),
    "impatient": lambda: QueueTimeout(timeout=0.8),
    "limited": lambda: RateLimit(limit=2, window=1.0),
    "capricious": Capricious,
}
PREEMPTIONS: dict[str, Callable[[], Preemption]] = {
    **built_in("preemption"),
    **{f"{name}_swap": partial(choice, mode=Mode.SWAP) for name, choice in collect("preemption").items()},
    "swapper": Swapper,
}
PREDICTORS = built_in("predictors")

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
