"""The waiting requests, in lanes that are kept sorted."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

from slotlab.errors import PluginError
from slotlab.request import RequestState, RequestView

if TYPE_CHECKING:
    from slotlab.kinds import Policy

Key = float | tuple[float, ...]
Entry = tuple[Any, int, RequestState]  # key, seq, request


class Waiting:
    """Waiting requests by lane (a tenant, a level, ...), each lane sorted by (key, seq).

    Keys are asked for once, when a request is queued, so a step costs nothing for the requests it does not look at. A sorted list
    serves better than a heap here: it can be walked without popping, and an insertion among 100,000 takes 20 microseconds.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lanes: dict[Hashable, list[Entry]] = {}
        self._place: dict[RequestState, tuple[Hashable, Key]] = {}
        self._ages: list[tuple[int, int, RequestState]] = []  # heap by seq; those who left are dropped when they surface
        self._tick = itertools.count()
        self._some: tuple[Hashable, Key] | None = None
        self.indifferent = True  # nobody ever waited with another lane or key than the others

    def add(self, req: RequestState) -> None:
        """Queue `req`: its lane and its key are asked for now."""
        lane, key = self._policy.lane(req), self._policy.key(req)
        if any(part != part for part in (key if isinstance(key, tuple) else (key,))):
            raise PluginError(self._policy, req, f"key is {key}, which has no place in an order")
        self._place[req] = lane, key
        if self.indifferent:
            self._some = self._some or (lane, key)
            self.indifferent = self._some == (lane, key)
        try:
            insort(self._lanes.setdefault(lane, []), (key, req.seq, req))
        except TypeError as error:
            raise PluginError(self._policy, req, f"lane {lane!r} and key {key!r}: {error}") from error
        heapq.heappush(self._ages, (req.seq, next(self._tick), req))

    def remove(self, req: RequestState) -> None:
        """Take `req` out of its lane."""
        lane, key = self._place.pop(req)
        entries = self._lanes[lane]
        del entries[bisect_left(entries, (key, req.seq))]
        if not entries:
            del self._lanes[lane]
        while self._ages and self._ages[0][2] not in self._place:
            heapq.heappop(self._ages)

    def refresh(self, req: RequestView) -> None:
        """Ask for the lane and key of `req` again: for a policy that has just changed its mind about it."""
        assert isinstance(req, RequestState)
        self.remove(req)
        self.add(req)

    def walk(self, lane: Hashable = None) -> Iterator[RequestState]:
        """The requests of one lane, best first. Those that start or leave during the walk are neither repeated nor skipped."""
        return (entry[2] for entry in self._entries(lane))

    def _entries(self, lane: Hashable) -> Iterator[Entry]:
        entries, i = self._lanes.get(lane, []), 0
        while i < len(entries):
            entry = entries[i]
            yield entry
            if i < len(entries) and entries[i] is entry:
                i += 1

    def head(self, lane: Hashable = None) -> RequestState:
        """The best of a lane that holds somebody."""
        return self._lanes[lane][0][2]

    def lanes(self) -> list[Hashable]:
        """The lanes that hold somebody."""
        return list(self._lanes)

    def count(self, lane: Hashable) -> int:
        """How many wait in `lane`."""
        return len(self._lanes.get(lane, ()))

    def only(self, shown: Callable[[RequestView], bool]) -> Waiting:
        """The same queue without those who are not `shown`: for a modifier to hide some from its policy."""
        return Part(self, shown)

    def oldest(self) -> RequestState:
        """The one that arrived first."""
        return self._ages[0][2]

    def __contains__(self, req: object) -> bool:
        return req in self._place

    def __len__(self) -> int:
        return len(self._place)

    def __iter__(self) -> Iterator[RequestState]:
        """Everybody, best first; across lanes by (key, seq)."""
        if len(self._lanes) == 1:
            return self.walk(next(iter(self._lanes)))
        merged = heapq.merge(*map(self._entries, self.lanes()))  # looks ahead by one in each lane
        return (entry[2] for entry in merged if entry[2] in self)


class Part(Waiting):
    """A queue with some of its requests hidden. To read only; who is shown may change while it is walked."""

    def __init__(self, whole: Waiting, shown: Callable[[RequestView], bool]) -> None:
        self.whole, self.shown = whole, shown
        self._lanes = whole._lanes

    def _entries(self, lane: Hashable) -> Iterator[Entry]:
        return (entry for entry in self.whole._entries(lane) if self.shown(entry[2]))

    def head(self, lane: Hashable = None) -> RequestState:
        """See `Waiting.head`."""
        return next(self._entries(lane))[2]

    def lanes(self) -> list[Hashable]:
        """See `Waiting.lanes`."""
        return [lane for lane in self.whole.lanes() if any(True for _ in self._entries(lane))]

    def count(self, lane: Hashable) -> int:
        """See `Waiting.count`."""
        return sum(1 for _ in self._entries(lane))

    def oldest(self) -> RequestState:
        """See `Waiting.oldest`."""
        return min(self, key=lambda req: req.seq)

    def refresh(self, req: RequestView) -> None:
        """See `Waiting.refresh`."""
        self.whole.refresh(req)

    def __contains__(self, req: object) -> bool:
        return req in self.whole and isinstance(req, RequestState) and self.shown(req)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
