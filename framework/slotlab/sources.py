"""Where requests come from while a run goes on: an open loop keeps to its times, a closed loop waits for answers.

In both, an arrival that follows another one is sent its time to think after that one has left.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from slotlab.errors import UserError
from slotlab.request import Request, RequestState
from slotlab.streams import Streams
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
        self.arrivals = arrivals
        self.followers = followers(arrivals)
        self.ready = [(arrival.time / rate, id) for id, arrival in enumerate(arrivals) if arrival.follows is None]
        heapify(self.ready)

    def due(self, now: float) -> list[Request]:
        """Requests whose time has come."""
        due = []
        while self.ready and self.ready[0][0] <= now:
            time, id = heappop(self.ready)
            due.append(request(id, time, self.arrivals[id]))
        return due

    def next_time(self) -> float:
        """When the next one is due."""
        return self.ready[0][0] if self.ready else math.inf

    def left(self, req: RequestState, now: float) -> None:
        """Those who waited for its answer start to think."""
        for id in self.followers.pop(req.id, ()):
            heappush(self.ready, (now + self.arrivals[id].think, id))

    def __bool__(self) -> bool:
        return bool(self.ready or self.followers)


class ClosedLoop(OpenLoop):
    """`concurrency` clients, each of which sends its next request when it has the answer to the last.

    A client goes through a session before it takes the next one; `thinks[i]`: how long it then thinks, after answer i.
    """

    def __init__(self, arrivals: Sequence[Arrival], concurrency: int, thinks: Sequence[float] = ()) -> None:
        super().__init__(arrivals)
        self.thinks = thinks
        self.queue = deque(id for id, arrival in enumerate(arrivals) if arrival.follows is None)
        self.ready = [(0.0, self.queue.popleft()) for _ in range(min(concurrency, len(self.queue)))]

    def left(self, req: RequestState, now: float) -> None:
        """Its client is free for the next request."""
        following = self.followers.pop(req.id, [])
        if following:
            heappush(self.ready, (now + self.arrivals[following[0]].think, following[0]))
            self.queue.extendleft(reversed(following[1:]))  # branches of a session: one client, one after the other
        elif self.queue:
            heappush(self.ready, (now + (self.thinks[req.id] if self.thinks else 0.0), self.queue.popleft()))

    def __bool__(self) -> bool:
        return bool(self.ready or self.followers or self.queue)


def followers(arrivals: Sequence[Arrival]) -> dict[int, list[int]]:
    """Indices of the arrivals that wait for each arrival's answer."""
    waiting: dict[int, list[int]] = defaultdict(list)
    for id, arrival in enumerate(arrivals):
        if arrival.follows is not None:
            assert 0 <= arrival.follows < id, f"arrival {id} follows {arrival.follows}, which does not come before it"
            waiting[arrival.follows].append(id)
    return dict(waiting)


def mean_rate(arrivals: Sequence[Arrival]) -> float:
    """Arrivals per unit of their own time, from the first to the last. Raises UserError if they all come at once."""
    span = arrivals[-1].time - arrivals[0].time if arrivals else 0.0
    if span <= 0:
        raise UserError("load: all requests of the workload come at one instant, which no rate can change; choose load=native")
    return (len(arrivals) - 1) / span


def source(arrivals: Sequence[Arrival], point: Point, streams: Streams | None = None, own_times: bool = False) -> OpenLoop:
    """The loop that `point` asks for. Clients that think need the run's `streams`.

    The times of a workload with `own_times` are scaled by one factor, so that their mean rate becomes that of the point.
    """
    if point.concurrency is None:
        unit = mean_rate(arrivals) if own_times and point.rate is not None else 1.0
        return OpenLoop(arrivals, 1.0 if point.rate is None else point.rate / unit)
    if not point.think:
        return ClosedLoop(arrivals, point.concurrency)
    assert streams is not None, "times to think are drawn"
    thinks = point.think * streams("clients").exponential(size=len(arrivals))
    return ClosedLoop(arrivals, point.concurrency, thinks.tolist())
