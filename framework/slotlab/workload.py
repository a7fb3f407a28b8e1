"""Workloads: which requests come, and when. Loads: how hard they press."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from slotlab.errors import require
from slotlab.limits import LATEST, MOST_REPEATS
from slotlab.streams import Streams


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come. `output_tokens` is the truth: engines and oracles read it, policies never see it."""

    time: float  # own seconds of a workload with `own_times`; else in mean gaps, to be divided by the rate
    prompt_tokens: int
    max_tokens: int
    output_tokens: int | None  # None: nobody knows; the answer ends where the model ends it, at `max_tokens` at the latest
    tenant: str = "default"
    priority: int = 0
    deadline: float | None = None  # seconds after the arrival, for the first token
    weight: float = 1.0  # of its tenant
    prefix_group: int | None = None  # the first `prefix_tokens` of the prompt are those of everybody in this group
    prefix_tokens: int = 0
    follows: int | None = None  # index of the arrival whose prompt and answer the prompt begins with; sent after that answer
    think: float = 0.0  # seconds between that answer and this request
    text: str | tuple[tuple[str, str], ...] | None = None  # the prompt in words, or a chat: (role, words) ...; the engine counts

    @property
    def most_output(self) -> int:
        """Tokens of the answer; at most, where its length is unknown."""
        return self.max_tokens if self.output_tokens is None else min(self.output_tokens, self.max_tokens)


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

    def facts(self) -> Mapping[str, str]:
        """What the last draw showed that the record should say: which rows of a file were left out, and why.

        A fact named `remark.KEY` changes the meaning of results, as in `Engine.open`.
        """
        return {}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve: an open loop at `rate` requests per second, a closed loop of `concurrency` clients, or neither."""

    rate: float | None = None
    concurrency: int | None = None
    think: float = 0.0  # seconds on average between an answer and the client's next request (exponential)


class Bench(Protocol):
    """What a load may ask of the engine before it chooses its points."""

    def capacity(self) -> float:
        """Requests per second that the engine completes when it never runs dry. Measured once per sweep."""
        ...

    def knee(self, accuracy: float, max_requests: int) -> float:
        """The highest rate that the composition sustains, known to within a share `accuracy`. Found once per sweep."""
        ...


@dataclass
class Load:
    """The points of a curve, each served `repeats` times on different draws of the workload.

    `max_seconds` (of the run's clock) ends a point early; what is under way then counts as aborted. `ref_rate`: the point
    of this rate, or the one nearest to it, stands for the curve; by default the middle point.
    """

    repeats: int = 1
    max_seconds: float | None = None
    ref_rate: float | None = None

    def __post_init__(self) -> None:
        require(1 <= self.repeats <= MOST_REPEATS, "repeats", self.repeats, f"at least 1 and at most {MOST_REPEATS}")
        for name in ("max_seconds", "ref_rate"):
            value = getattr(self, name)
            require(value is None or 0 < value <= LATEST, name, value, f"greater than 0 and at most {LATEST:g}, or null")

    def points(self, bench: Bench) -> Sequence[Point]:
        """From the lowest load to the highest. `bench` can measure what the engine can do."""
        raise NotImplementedError

    @property
    def draws(self) -> int:
        """Most repeats of a point. All of them make up the workload's digest, served or not."""
        return self.repeats

    def enough(self, figures: Sequence[Mapping[str, float]]) -> bool:
        """Whether a point whose repeats came to `figures` needs no more. The first job of a sweep decides for all."""
        return len(figures) >= self.repeats

    def remark(self, figures: Sequence[Mapping[str, float]]) -> str | None:
        """What the user should know about a point whose repeats came to `figures`."""
        return None

    def ref_index(self, points: Sequence[Point]) -> int:
        """The point that stands for the curve."""
        rates = [point.rate for point in points if point.rate]
        if self.ref_rate is None:
            return len(points) // 2
        require(len(rates) == len(points), "load.ref_rate", self.ref_rate, "null, for this load has no rates")
        gaps = [abs(math.log(rate / self.ref_rate)) for rate in rates]
        return gaps.index(min(gaps))


def digest(repeats: Iterable[Iterable[Arrival]]) -> str:
    """SHA-256 of a workload before any rate is applied: equal digests were served the same requests. Weights do not count."""
    sha = hashlib.sha256()
    for arrivals in repeats:
        for a in arrivals:
            row = (a.time, a.prompt_tokens, a.max_tokens, a.output_tokens, a.tenant, a.priority, a.deadline)
            more = (a.prefix_group, a.prefix_tokens, a.follows, a.think, a.text)
            sha.update(repr((*row, *more)).encode())
        sha.update(b"/")
    return sha.hexdigest()
