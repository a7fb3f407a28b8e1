"""A request: what was asked (immutable), and how far it has come (written by the scheduler alone)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

ROOT = 0  # number of what is before the first block in a prefix cache


class Status(Enum):
    """Where a request is. The values are what records say."""

    HELD = "held"  # refused a place in the queue until a given time
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # waiting again, after it lost its slot
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the client sent it. `max_tokens` is the cap the client knows, never the true output length."""

    id: int
    arrival: float  # scheduled, in seconds on the run's clock
    prompt_tokens: int
    max_tokens: int
    tenant: str = "default"
    priority: int = 0  # lower runs first
    deadline: float | None = None  # for the first token, on the same clock as `arrival`
    weight: float = 1.0  # the tenant's fair share, relative to other tenants'


class RequestView(Protocol):
    """What plugins see of a request. Read-only: a plugin that assigns to it does not type-check."""

    @property
    def id(self) -> int: ...
    @property
    def seq(self) -> int: ...  # number in the order of submission: the last tie-break everywhere
    @property
    def arrival(self) -> float: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def tenant(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def deadline(self) -> float | None: ...
    @property
    def weight(self) -> float: ...  # of its tenant, for fair shares
    @property
    def predicted_output(self) -> int: ...  # the predictor's estimate, 1 <= predicted_output <= max_tokens
    @property
    def status(self) -> Status: ...
    @property
    def computed(self) -> int: ...  # tokens whose K and V are in the cache
    @property
    def emitted(self) -> int: ...  # output tokens handed to the client
    @property
    def remaining(self) -> int: ...  # known tokens still to be computed: 1 for a decode, more for a prefill
    @property
    def num_blocks(self) -> int: ...
    @property
    def preemptions(self) -> int: ...


@dataclass(eq=False, slots=True)
class RequestState:
    """A request inside the scheduler. The fields of `Request` are copied flat: the step loop reads them at every step."""

    id: int
    seq: int
    arrival: float
    prompt_tokens: int
    max_tokens: int
    tenant: str
    priority: int
    deadline: float | None
    weight: float
    predicted_output: int
    status: Status = Status.WAITING
    reason: str | None = None  # why it was rejected
    submitted: float = 0.0
    started: float | None = None  # the first time it got a slot
    computed: int = 0
    emitted: int = 0
    high: int = 0  # most tokens ever computed, entered when it loses its slot: computing below it is repetition
    swapped: int = 0  # tokens whose K and V wait in host memory
    blocks: list[int] = field(default_factory=list)
    capacity: int = 0  # tokens that `blocks` can hold
    preemptions: int = 0
    cached: int = 0  # prompt tokens that prefix hits saved it from ever computing
    recomputed: int = 0  # tokens computed again
    bypassed: int = 0  # requests started after this one was skipped
    prefix_hits: tuple[int, Sequence[int]] | None = None  # blocks it may share, as of a version of the prefix cache
    sealed: int = 0  # full blocks that the prefix cache knows
    last_sealed: int = ROOT  # number of the last of them

    @classmethod
    def of(cls, req: Request, seq: int, predicted: int, now: float) -> RequestState:
        """The state of `req` when it is submitted at time `now`."""
        return cls(
            id=req.id,
            seq=seq,
            arrival=req.arrival,
            prompt_tokens=req.prompt_tokens,
            max_tokens=req.max_tokens,
            tenant=req.tenant,
            priority=req.priority,
            deadline=req.deadline,
            weight=req.weight,
            predicted_output=predicted,
            submitted=now,
        )

    @property
    def known(self) -> int:
        """Tokens whose values are known: prompt and emitted output."""
        return self.prompt_tokens + self.emitted

    @property
    def remaining(self) -> int:
        """Known tokens still to be computed: 1 for a decode, more for a prefill."""
        return self.prompt_tokens + self.emitted - self.computed

    @property
    def num_blocks(self) -> int:
        """KV blocks it holds."""
        return len(self.blocks)

    @property
    def most_tokens(self) -> int:
        """KV at the last step, whatever happens: the last token emitted is never written to the cache."""
        return self.prompt_tokens + self.max_tokens - 1
