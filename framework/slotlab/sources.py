"""Where requests come from while a run goes on: an open loop keeps to its times, a closed loop waits for answers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from slotlab.request import Request, RequestState
from slotlab.workload import Arrival, Point


def request(id: int, time: float, arrival: Arrival) -> Request:
    """`arrival` as it is submitted, without its truth."""
    deadline = None if arrival.deadline is None else time + arrival.deadline
    return Request(
        id=id,
        arrival=time,
        prompt_tokens=arrival.prompt_tokens,
        max_tokens=arrival.max_tokens,
        tenant=arrival.tenant,
        priority=arrival.priority,
        deadline=deadline,
        weight=arrival.weight,
    )


class Source(Protocol):
    """Hands out requests when they are due."""

    def due(self, now: float) -> list[Request]:
        """Requests whose time has come, in order."""
        ...

    def next_time(self) -> float:
        """When the next one is due; infinity if that depends on answers, or if there is none."""
        ...

    def left(self, req: RequestState, now: float) -> None:
        """`req` finished or was rejected."""
        ...

    def __bool__(self) -> bool:
        """Whether there is more to come."""
        ...


class OpenLoop:
    """Requests at fixed times, whatever becomes of them; `rate` requests per unit of the arrivals' time."""

    def __init__(self, arrivals: Sequence[Arrival], rate: float = 1.0) -> None:
        self.queue = deque(request(i, arrival.time / rate, arrival) for i, arrival in enumerate(arrivals))

    def due(self, now: float) -> list[Request]:
        """Requests whose time has come."""
        due = []
        while self.queue and self.queue[0].arrival <= now:
            due.append(self.queue.popleft())
        return due

    def next_time(self) -> float:
        """When the next one is due."""
        return self.queue[0].arrival if self.queue else math.inf

    def left(self, req: RequestState, now: float) -> None:
        """Nobody waits for an answer."""

    def __bool__(self) -> bool:
        return bool(self.queue)


class ClosedLoop:
    """`concurrency` clients, each of which sends its next request when it has the answer to the last."""

    def __init__(self, arrivals: Sequence[Arrival], concurrency: int) -> None:
        self.queue = deque(enumerate(arrivals))
        self.ready = deque([0.0] * concurrency)

    def due(self, now: float) -> list[Request]:
        """One request for each client that has its answer."""
        due = []
        while self.queue and self.ready and self.ready[0] <= now:
            id, arrival = self.queue.popleft()
            due.append(request(id, self.ready.popleft(), arrival))
        return due

    def next_time(self) -> float:
        """When the next one is due."""
        return self.ready[0] if self.queue and self.ready else math.inf

    def left(self, req: RequestState, now: float) -> None:
        """Its client is free again."""
        self.ready.append(now)

    def __bool__(self) -> bool:
        return bool(self.queue)


def source(arrivals: Sequence[Arrival], point: Point) -> Source:
    """The loop that `point` asks for."""
    if point.concurrency is not None:
        return ClosedLoop(arrivals, point.concurrency)
    return OpenLoop(arrivals, 1.0 if point.rate is None else point.rate)
