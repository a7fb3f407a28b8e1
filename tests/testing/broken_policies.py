"""Policies and modifiers each of which breaks one rule of its contract."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from slotlab import (
    FOREVER,
    Key,
    Misfit,
    Modifier,
    Policy,
    Quiet,
    RequestView,
    Served,
    Status,
    Verdict,
    View,
    Waiting,
)


@dataclass
class Starving(Policy):
    """Tenant b never starts."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return (req for req in waiting if req.tenant != "b")


@dataclass
class Twice(Policy):
    """Names everybody twice."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return (req for req in list(waiting) for _ in range(2))


@dataclass
class Unknown(Policy):
    """Names somebody who runs already."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return [*view.running, *waiting]


@dataclass
class TwiceRunning(Policy):
    """Seats everybody twice."""

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        return [*running, *running]


@dataclass
class LyingQuiet(Policy):
    """Changes its mind with every step, and says that it never does."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return list(waiting)[:: 1 if view.step % 3 else -1]

    def quiet(self, view: View) -> Quiet:
        return FOREVER


@dataclass
class ShortFirst(Policy):
    """Honest but for its claim: the long are overtaken for ever."""

    def key(self, req: RequestView) -> Key:
        return req.predicted_output


@dataclass
class ByAddress(Policy):
    """Sorts by where requests lie in memory."""

    def key(self, req: RequestView) -> Key:
        return id(req)


@dataclass
class ByHash(Policy):
    """Sorts tenants by their hash."""

    def key(self, req: RequestView) -> Key:
        return hash(req.tenant) % 101


@dataclass
class Dice(Policy):
    """Throws dice for each key."""

    def key(self, req: RequestView) -> Key:
        return random.random()


@dataclass
class OtherEachTime(Policy):
    """Draws its order when it is built, from nowhere."""

    def __post_init__(self) -> None:
        self._seed = random.SystemRandom().random()

    def key(self, req: RequestView) -> Key:
        return random.Random(f"{self._seed}{req.seq}").random()


@dataclass
class Raising(Policy):
    """Forgets that a request may start again."""

    def __post_init__(self) -> None:
        self._waiting: dict[int, float] = {}

    def arrived(self, req: RequestView, view: View) -> None:
        self._waiting[req.id] = view.now

    def started(self, req: RequestView, cached: int) -> None:
        del self._waiting[req.id]

    def left(self, req: RequestView, status: Status) -> None:
        self._waiting.pop(req.id, None)


@dataclass
class Sorting(Policy):
    """Sorts the whole queue in every step."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return sorted(waiting, key=self.length)

    def length(self, req: RequestView) -> int:
        """What it sorts by."""
        return req.predicted_output


@dataclass
class SlowArrivals(Policy):
    """Looks at the whole queue whenever somebody joins it."""

    def __post_init__(self) -> None:
        self._longest = 0

    def arrived(self, req: RequestView, view: View) -> None:
        self._longest = max((other.prompt_tokens for other in view.waiting), default=0)


@dataclass
class Writing(Policy):
    """Promotes requests by writing to them."""

    def arrived(self, req: Any, view: View) -> None:
        req.priority = 0


@dataclass
class WritingLate(Policy):
    """Writes while its order is pulled."""

    def order(self, waiting: Waiting, view: View) -> Iterator[Any]:
        for req in waiting:
            yield req
            req.bypassed += 1


@dataclass
class Turning(Policy):
    """Counts its turns in `order`."""

    def __post_init__(self) -> None:
        self._turn = 0

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        self._turn += 1
        return waiting


@dataclass
class TurningLate(Policy):
    """Counts its turns while its order is pulled."""

    def __post_init__(self) -> None:
        self._turns: dict[str, int] = {}

    def order(self, waiting: Waiting, view: View) -> Iterator[RequestView]:
        for req in waiting:
            yield req
            self._turns[req.tenant] = self._turns.get(req.tenant, 0) + 1


@dataclass
class NotANumber(Policy):
    """Divides nothing by nothing."""

    def key(self, req: RequestView) -> Key:
        return math.nan if req.prompt_tokens == 3 else req.arrival


@dataclass
class Mixed(Policy):
    """Answers numbers here and tuples there, each in a lane of its own."""

    def lane(self, req: RequestView) -> Hashable:
        return req.priority > 0

    def key(self, req: RequestView) -> Key:
        return (req.arrival, 1.0) if req.priority else req.arrival


@dataclass
class Worded(Policy):
    """Ranks by name."""

    def rank(self, req: RequestView, view: View) -> Any:
        return req.tenant

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT


@dataclass
class Hoarding(Policy):
    """Keeps a note of everybody who ever came."""

    def __post_init__(self) -> None:
        self._seen: dict[int, float] = {}

    def arrived(self, req: RequestView, view: View) -> None:
        self._seen[req.id] = view.now


@dataclass
class CountsCalls(Policy):
    """Counts calls of `served` where it means steps."""

    def __post_init__(self) -> None:
        self._steps = 0

    def served(self, work: Served, steps: int) -> None:
        self._steps += 1

    def quiet(self, view: View) -> Quiet:
        return FOREVER


class NoDataclass(Policy):
    """Its options would vanish."""

    weight: float = 1.0


@dataclass
class Deaf(Modifier):
    """Keeps an event to itself."""

    def started(self, req: RequestView, cached: int) -> None:
        """Nothing is passed on."""


@dataclass
class Cutting(Modifier):
    """Offers the policy's first choice only, and then nothing."""

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return list(self.inner.order(waiting, view))[:1]
