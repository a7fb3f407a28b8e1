"""One step's work, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from slotlab.request import RequestState

Bound = Literal["none", "slots", "tokens", "kv", "gate"]


@dataclass(slots=True)
class Plan:
    """How many tokens of each request to compute. Prefill, chunk and decode are the same thing."""

    time: float = 0.0  # when it was made
    tokens: dict[RequestState, int] = field(default_factory=dict)
    swap_out: dict[RequestState, list[int]] = field(default_factory=dict)  # blocks to copy to host memory, before all else
    swap_in: dict[RequestState, list[int]] = field(default_factory=dict)  # blocks to copy them back to, before computing
    padding: int = 0  # tokens computed and thrown away, to make the batch a rectangle
    decodes: bool = False  # each request has one token to compute, and emits one in each step
    repeat: int = 1  # steps an engine may run in one go: every request decodes, and no plugin would change its mind
    until: float = math.inf  # no further step may begin at or after this time; if empty: plan again at this time
    bound: Bound = "none"  # what kept the next waiting request out
    seated: Sequence[RequestState] = ()  # who holds a slot, in order of start
    paused: Sequence[RequestState] = ()  # who holds KV without a slot
    running: int = 0  # who holds KV
    waiting: int = 0
    kv_reserved: int = 0  # blocks that running requests hold
    started: int = 0
    preempted: int = 0
    unserved: Sequence[tuple[RequestState, str]] = ()  # who got no token, and why; only if the scheduler logs its decisions

    def __bool__(self) -> bool:
        return bool(self.tokens)

    @property
    def swapped_blocks(self) -> int:
        """Blocks copied between device and host."""
        return sum(map(len, (*self.swap_out.values(), *self.swap_in.values())))


@dataclass(slots=True)
class Result:
    """What an engine returns: how long each step took, the tokens each request emitted over all of them, and who ended."""

    durations: Sequence[float]  # seconds on the run's clock, one per step
    emitted: Sequence[int]  # parallel to `Plan.tokens`
    stopped: Sequence[RequestState] = ()


def split_work(req: RequestState, n: int) -> tuple[int, int, int]:
    """The next `n` tokens of `req` as (prompt tokens computed for the first time, recomputed tokens, decoded tokens)."""
    before, high = req.computed, max(req.computed, req.high)
    again = max(0, min(before + n, high) - before)
    first = max(0, min(before + n, req.prompt_tokens) - max(before, min(high, req.prompt_tokens)))
    return first, again, n - first - again
