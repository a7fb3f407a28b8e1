"""Workloads: which requests come, and when. Loads: how hard they press."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from slotlab.streams import Streams


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come. `output_tokens` is the truth: engines and oracles read it, policies never see it."""

    time: float  # own seconds of a workload with `own_times`; else in mean gaps, to be divided by the rate
    prompt_tokens: int
    max_tokens: int
    output_tokens: int
    tenant: str = "default"
    priority: int = 0
    deadline: float | None = None  # seconds after the arrival, for the first token
    weight: float = 1.0  # of its tenant


@dataclass
class Tenant:
    """Who sends requests: a share of them, a weight for fair policies, a priority (lower runs first)."""

    name: str = "default"
    share: float = 1.0
    weight: float = 1.0
    priority: int = 0


@dataclass
class Workload:
    """Draws the requests of one repeat. The same streams give the same requests, whatever runs them."""

    own_times: ClassVar[bool] = False  # True: arrival times are the workload's own, as in a trace; load defaults to native

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        """All arrivals in the order of time."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve: an open loop at `rate` requests per second, a closed loop of `concurrency` clients, or neither."""

    rate: float | None = None
    concurrency: int | None = None


class Bench(Protocol):
    """What a load may ask of the engine before it chooses its points."""

    def capacity(self) -> float:
        """Requests per second that the engine completes when it never runs dry. Measured once per sweep."""
        ...


@dataclass
class Load:
    """The points of a curve, each served `repeats` times on different draws of the workload."""

    repeats: int = 1

    def points(self, bench: Bench) -> Sequence[Point]:
        """From the lowest load to the highest. `bench` can measure what the engine can do."""
        raise NotImplementedError


def digest(repeats: Iterable[Iterable[Arrival]]) -> str:
    """SHA-256 of a workload before any rate is applied: equal digests were served the same requests. Weights do not count."""
    sha = hashlib.sha256()
    for arrivals in repeats:
        for a in arrivals:
            row = (a.time, a.prompt_tokens, a.max_tokens, a.output_tokens, a.tenant, a.priority, a.deadline)
            sha.update(repr(row).encode())
        sha.update(b"/")
    return sha.hexdigest()
