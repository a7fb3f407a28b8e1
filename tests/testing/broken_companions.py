"""Batchings, admissions and preemptions each of which breaks one rule of its contract."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from slotlab import (
    FOREVER,
    Accept,
    Admission,
    Batching,
    Closed,
    Evict,
    Hold,
    Mode,
    Need,
    Open,
    Preemption,
    Quiet,
    Reject,
    RequestView,
    UserError,
    View,
)


@dataclass
class Merciful(Preemption):
    """Never offers a victim."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return []


@dataclass
class Stranger(Preemption):
    """Offers whoever asks, twice."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return [Evict(requester, Mode.RECOMPUTE)] * 2 if requester not in candidates else map(Evict, candidates)


@dataclass
class RoundRobin(Preemption):
    """Remembers whom it offered."""

    def __post_init__(self) -> None:
        self._last = 0

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterator[Evict]:
        for req in reversed(candidates):
            self._last = req.id
            yield Evict(req)


@dataclass
class Stingy(Admission):
    """Commits nothing as long as less than half of the cache is free, whether anybody runs or not."""

    def reserve(self, req: RequestView, view: View) -> int | None:
        return req.prompt_tokens if 2 * req.prompt_tokens < view.total_blocks * view.block_size else None


@dataclass
class HoldsForEver(Admission):
    """Holds the urgent until the end of time."""

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        return Hold(math.inf) if req.priority == 3 else Accept()


@dataclass
class Counting(Admission):
    """Counts how often it is asked to reserve."""

    def __post_init__(self) -> None:
        self._asked = 0

    def reserve(self, req: RequestView, view: View) -> int | None:
        self._asked += 1
        return req.prompt_tokens


@dataclass
class Shut(Batching):
    """Closes after the first eight steps, for good."""

    def gate(self, view: View) -> Open | Closed:
        return Open() if view.step < 8 else Closed()


@dataclass
class LyingGate(Batching):
    """Opens in every fifth step, and says that this never changes."""

    def gate(self, view: View) -> Open | Closed:
        return Open() if view.step % 5 == 0 or not view.running else Closed()

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class Forgetful(Batching):
    """Counts steps in `gate`, which is not asked in every one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._steps = 0

    def gate(self, view: View) -> Open | Closed:
        self._steps += 1
        return Open()


@dataclass
class Idle(Batching):
    """Gives requests with long prompts nothing."""

    def quota(self, req: RequestView, left: int, view: View) -> int:
        return 0 if req.prompt_tokens > 20 else left


@dataclass
class Picky(Batching):
    """Declines nearly everything."""

    def gate(self, view: View) -> Open | Closed:
        raise UserError("picky.mood=bad: must be good")
