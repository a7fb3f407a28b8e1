"""Requests written down one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from slotlab import Arrival, Streams, Workload, require
from slotlab.limits import LATEST, MOST_TOKENS, PRIORITIES

RANGES = {"lengths": (1, MOST_TOKENS), "prompts": (1, MOST_TOKENS), "arrivals": (0, LATEST), "priorities": PRIORITIES}


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
        for name, (low, high) in RANGES.items():
            for value in getattr(self, name):
                require(low <= value <= high, name, value, f"at least {low} and at most {high:.10g}")
        require(self.arrivals == sorted(self.arrivals), "arrivals", self.arrivals, "in the order of time")
        cap = self.max_tokens
        require(cap is None or 1 <= cap <= MOST_TOKENS, "max_tokens", cap, f"at least 1 and at most {MOST_TOKENS}")

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
