"""Who is where, and who holds what: the transitions that no plugin can get wrong."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

from slotlab.core.answers import moment
from slotlab.core.blocks import BlockPool
from slotlab.decisions import Accept, Hold, Reject
from slotlab.errors import PluginError
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption, layers, overrides
from slotlab.request import RequestState, Status
from slotlab.view import View
from slotlab.waiting import Waiting


@dataclass(slots=True)
class Plugins:
    """The five choices, and which of their optional hooks are worth calling."""

    policy: Policy
    batching: Batching
    admission: Admission
    preemption: Preemption
    predictor: Predictor
    pauses: bool = False
    contests: bool = False
    watches: bool = False
    quotas: bool = False
    pads: bool = False

    def __post_init__(self) -> None:
        self.pauses = overrides(self.policy, Policy, "order_running")
        self.contests = overrides(self.policy, Policy, "on_misfit")
        self.watches = overrides(self.policy, Policy, "served")
        self.quotas = overrides(self.batching, Batching, "quota")
        self.pads = overrides(self.batching, Batching, "padding")

    def __iter__(self) -> Iterator[object]:
        return iter((*layers(self.policy), self.batching, self.admission, self.preemption, self.predictor))


class Books:
    """Every unfinished request is in exactly one of `held`, `waiting` and `running`; only the last hold KV."""

    def __init__(self, pool: BlockPool, plugins: Plugins) -> None:
        self.pool, self.plugins = pool, plugins
        self.waiting = Waiting(plugins.policy)
        self.running: dict[RequestState, None] = {}  # oldest start first
        self.prefilling: dict[RequestState, None] = {}  # those of them with more than a decode to compute
        self.held: list[tuple[float, int, RequestState]] = []
        self.expiring: list[tuple[float, int, RequestState]] = []  # those who must have started at a time, some long gone
        self.departed: list[RequestState] = []  # since somebody last looked
        self.view = View(pool, self.waiting, self.running, plugins.policy.rank)

    def arrive(self, req: RequestState) -> None:
        """Queue, hold or reject."""
        plugins = self.plugins
        match plugins.admission.admit(req, self.view):
            case Accept(until) if moment(plugins.admission, "admit", until) > self.view.now:
                req.status = Status.WAITING
                plugins.policy.arrived(req, self.view)
                self.waiting.add(req)
                if until < math.inf:
                    heapq.heappush(self.expiring, (until, req.seq, req))
            case Hold(until) if moment(plugins.admission, "admit", until) > self.view.now:
                req.status = Status.HELD
                heapq.heappush(self.held, (until, req.seq, req))
            case Reject(reason):
                self.reject(req, reason)
            case answer:
                raise PluginError(plugins.admission, req, f"admit answered {answer!r} at time {self.view.now}")

    def reject(self, req: RequestState, reason: str) -> None:
        """Refuse `req` for good."""
        req.reason = reason
        self.leave(req, Status.REJECTED)

    def keep_time(self) -> None:
        """Ask admission again about those held until now, and refuse those who had to start until now."""
        while self.held and self.held[0][0] <= self.view.now:
            self.arrive(heapq.heappop(self.held)[2])
        while self.expiring and self.expiring[0][0] <= self.view.now:
            until, _, req = heapq.heappop(self.expiring)
            if self._hopes(req):
                self.waiting.remove(req)
                self.reject(req, f"had not started after {until - req.arrival:.4g} of waiting")

    def next_time(self) -> float:
        """When `keep_time` has something to do again."""
        while self.expiring and not self._hopes(self.expiring[0][2]):
            heapq.heappop(self.expiring)
        return min((queue[0][0] for queue in (self.held, self.expiring) if queue), default=math.inf)

    def _hopes(self, req: RequestState) -> bool:
        """Whether `req` waits for its first start."""
        return req in self.waiting and req.started is None

    def start(self, req: RequestState, cached: int) -> None:
        """From the queue to a slot; the blocks are already taken."""
        self.waiting.remove(req)
        self.running[req] = None
        if req.known - cached > 1:
            self.prefilling[req] = None
        req.status, req.computed = Status.RUNNING, cached
        if req.started is None:
            req.started = self.view.now
        req.cached += max(0, min(cached, req.prompt_tokens) - req.high)
        req.swapped = 0
        self.view.last_start = self.view.step

    def stop(self, req: RequestState) -> None:
        """From a slot to nowhere; the blocks come back."""
        del self.running[req]
        self.prefilling.pop(req, None)
        self.pool.release(req)
        req.computed = 0

    def leave(self, req: RequestState, status: Status) -> None:
        """The end of `req`."""
        req.status = status
        self.departed.append(req)
        self.plugins.policy.left(req, status)
        if status is Status.FINISHED:
            self.plugins.predictor.finished(req)

    def abort(self, req: RequestState) -> None:
        """Remove `req` from wherever it is; nothing if it has left already."""
        if req in self.running:
            self.stop(req)
        elif req in self.waiting:
            self.waiting.remove(req)
        elif req.status is Status.HELD:
            self.held = [entry for entry in self.held if entry[2] is not req]
            heapq.heapify(self.held)
        else:
            return
        self.leave(req, Status.ABORTED)

    def check(self) -> None:
        """Blocks and requests are conserved. For tests, and for every step when debugging."""
        pool = self.pool
        pool.check(self.running)
        for req in self.running:
            assert req.computed <= req.capacity == len(req.blocks) * pool.block_size, (
                f"request {req.id} computed beyond its blocks"
            )
            assert req.status is Status.RUNNING and req not in self.waiting
            assert req in self.prefilling or req.remaining == 1, f"request {req.id} prefills unseen"
        assert self.prefilling.keys() <= self.running.keys()
        for req in [*self.waiting, *(req for *_, req in self.held)]:
            assert req.status in (Status.WAITING, Status.PREEMPTED, Status.HELD)
            assert not (req.blocks or req.computed or req.capacity), f"request {req.id} holds KV without running"
