"""Requests written down one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from slotlab import Arrival, Streams, UserError, Workload, require


@dataclass
class Explicit(Workload):
    """Output lengths from the config, with arrivals (else all at 0), prompts (else one token), tenants and priorities."""

    lengths: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    max_tokens: int | None = None  # the cap that all of them carry; else the largest length

    own_times: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(len(self.lengths) >= 1, "lengths", self.lengths, "one or more (the workload would be empty)")
        for name in ("arrivals", "prompts", "tenants", "priorities"):
            given = len(getattr(self, name))
            require(
                given in (0, len(self.lengths)),
                name,
                f"{given} values",
                f"{len(self.lengths)}, one for each of lengths",
            )
        for name, low in (("lengths", 1), ("prompts", 1), ("arrivals", 0)):
            if bad := [value for value in getattr(self, name) if value < low]:
                raise UserError(f"{name}={bad[0]}: must be at least {low}")
        require(self.arrivals == sorted(self.arrivals), "arrivals", self.arrivals, "in the order of time")
        require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        n, cap = len(self.lengths), self.max_tokens or max(self.lengths)
        columns = (
            self.arrivals or [0.0] * n,
            self.prompts or [1] * n,
            self.lengths,
            self.tenants or ["default"] * n,
            self.priorities or [0] * n,
        )
        for time, prompt, length, tenant, priority in zip(*columns, strict=True):
            yield Arrival(time, prompt, cap, min(length, cap), tenant, priority)


CHOICES = {"explicit": Explicit}
