"""Predictors, workloads and engines each of which breaks one rule of its contract."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from slotlab import (
    Arrival,
    Done,
    Plan,
    Predictor,
    Request,
    RequestState,
    RequestView,
    Result,
    Streams,
    UserError,
    Workload,
)
from slotlab.testing.executor import Executor


@dataclass
class Peeking(Predictor):
    """Wants the truth without having declared it."""

    def predict(self, req: Request, truth: Any) -> int:
        return min(truth, req.max_tokens)


@dataclass
class Clairvoyant(Predictor):
    """Reads what a request has emitted before it has."""

    def predict(self, req: Any, truth: int | None) -> int:
        return req.max_tokens - req.emitted


@dataclass
class Remembering(Predictor):
    """Keeps what it has learnt for the next run."""

    seen: ClassVar[dict[int, int]] = {}

    def predict(self, req: Request, truth: int | None) -> int:
        return self.seen.get(req.id, req.max_tokens)

    def finished(self, req: RequestView) -> None:
        self.seen[req.id] = req.emitted


@dataclass
class Halves(Predictor):
    """Half a token."""

    def predict(self, req: Request, truth: int | None) -> Any:
        return req.max_tokens / 2


@dataclass
class Learning(Predictor):
    """Learns from what it guessed itself."""

    def __post_init__(self) -> None:
        self._guesses: list[int] = []

    def predict(self, req: Request, truth: int | None) -> int:
        self._guesses.append(req.max_tokens)
        return req.max_tokens


@dataclass
class HashedGuess(Predictor):
    """Guesses by the hash of a name."""

    def predict(self, req: Request, truth: int | None) -> int:
        return 1 + hash(req.tenant) % 50


def rows(count: int = 20) -> list[Arrival]:
    """Some arrivals."""
    return [Arrival(float(i), 4, 8, 5) for i in range(count)]


@dataclass
class Unsorted(Workload):
    """Goes back in time."""

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        return reversed(rows())


@dataclass
class GlobalRandom(Workload):
    """Draws from the generator of the process."""

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        return (replace(row, prompt_tokens=random.randint(1, 1000)) for row in rows())


@dataclass
class HashedTenants(Workload):
    """Takes tenants from a set."""

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        tenants = list({f"tenant{i}" for i in range(20)})
        return (replace(row, tenant=tenant) for row, tenant in zip(rows(), tenants, strict=True))


@dataclass
class OnlyOnce(Workload):
    """Uses its arrivals up."""

    def __post_init__(self) -> None:
        self._rows = iter(rows())

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        return self._rows


@dataclass
class Overlong(Workload):
    """Says that answers are longer than they may be."""

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        return (replace(row, output_tokens=9) for row in rows())


@dataclass
class Hasty(Executor):
    """Emits before the prompt is computed."""

    def submit(self, plan: Plan) -> Done:
        result = super().submit(plan).result()
        return Done(replace(result, emitted=[max(1, out) for out in result.emitted]))


@dataclass
class Timeless(Executor):
    """Takes no time."""

    def submit(self, plan: Plan) -> Done:
        result = super().submit(plan).result()
        return Done(replace(result, durations=[0.0] * len(result.durations)))


@dataclass
class Endless(Executor):
    """Goes on beyond the length."""

    def submit(self, plan: Plan) -> Done:
        result = super().submit(plan).result()
        return Done(Result(result.durations, result.emitted))


@dataclass
class Leaping(Executor):
    """Jumps over what comes."""

    def _durations(self, plan: Plan, steps: int) -> list[float]:
        return [1.0] * steps


@dataclass
class Warming(Executor):
    """Gets faster by what it has run before, and does not forget it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._steps = 0

    def submit(self, plan: Plan) -> Done:
        self._steps += 1
        result = super().submit(plan).result()
        return Done(replace(result, durations=[time + 1 / self._steps for time in result.durations]))


@dataclass
class Meddling(Executor):
    """Enters results itself."""

    def submit(self, plan: Plan) -> Done:
        done = super().submit(plan)
        for req, n in plan.tokens.items():
            req.computed += n
        return done


@dataclass
class Refusing(Executor):
    """Cannot take more than two requests at a time."""

    def submit(self, plan: Plan) -> Done:
        if len(plan.tokens) > 2:
            raise UserError("engine: two requests at most")
        return super().submit(plan)

    def left(self, req: RequestState) -> None:
        """Nothing is kept."""
