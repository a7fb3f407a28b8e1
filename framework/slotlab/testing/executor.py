"""An engine that computes nothing, for scenarios."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from slotlab.clock import VirtualClock
from slotlab.engine import Done, Engine
from slotlab.plan import Plan, Result
from slotlab.request import RequestView
from slotlab.streams import Streams
from slotlab.workload import Arrival


@dataclass
class Executor(Engine):
    """Ends every request at its length; a step takes a second and more the more it computes, in sums that floats hold exactly."""

    jump: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._arrivals: Sequence[Arrival] = ()

    def clock(self) -> VirtualClock:
        return VirtualClock()

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        self._arrivals = arrivals

    def content(self, req: RequestView, block: int) -> Hashable:
        arrival = self._arrivals[req.id]
        shared = (block + 1) * self.block_size <= arrival.prefix_tokens
        return (arrival.prefix_group if shared else -1 - req.id), block

    def submit(self, plan: Plan) -> Done:
        items = plan.tokens
        to_go = [self._arrivals[req.id].most_output - req.emitted for req in items]
        durations = self._durations(plan, min(plan.repeat, *to_go) if self.jump and plan.repeat > 1 else 1)
        emitted = [len(durations) if req.remaining == n else 0 for req, n in items.items()]
        stopped = [req for req, left, out in zip(items, to_go, emitted, strict=True) if left == out]
        return Done(Result(durations, emitted, stopped))

    def _durations(self, plan: Plan, steps: int) -> list[float]:
        time, durations = plan.time, list[float]()
        tokens = sum(plan.tokens.values()) + plan.padding
        while len(durations) < steps and (not durations or time < plan.until):
            durations.append(1 + tokens / 8 + (0 if durations else plan.swapped_blocks / 4))
            time += durations[-1]
        return durations
