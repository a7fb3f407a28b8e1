"""A small run, written down: who asks for what and when, how little there is, and whom the plugin must get on with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from slotlab.workload import Arrival


@dataclass(frozen=True)
class Ask:
    """One request to come. `shared`: tokens that its prompt begins with alike, among those of its tenant."""

    time: float
    prompt: int
    output: int
    spare: int = 0  # how far the cap is above the true length
    tenant: str = "a"
    priority: int = 0
    deadline: float | None = None
    shared: int = 0
    aborted: float | None = None  # seconds after its arrival

    @property
    def arrival(self) -> Arrival:
        """As a workload would have drawn it."""
        return Arrival(
            time=self.time,
            prompt_tokens=self.prompt,
            max_tokens=self.output + self.spare,
            output_tokens=self.output,
            tenant=self.tenant,
            priority=self.priority,
            deadline=self.deadline,
            weight={"a": 1.0, "b": 2.0}.get(self.tenant, 0.5),
            prefix_group=ord(self.tenant[0]) if self.shared else None,
            prefix_tokens=min(self.shared, self.prompt - 1),
        )

    def __str__(self) -> str:
        cap = f"/{self.output + self.spare}" if self.spare else ""
        parts = [f"@{self.time:g} {self.prompt}+{self.output}{cap}"]
        parts += [f"tenant {self.tenant}"] if self.tenant != "a" else []
        parts += [f"priority {self.priority}"] if self.priority else []
        parts += [] if self.deadline is None else [f"deadline {self.time + self.deadline:g}"]
        parts += [f"shares {self.shared}"] if self.shared else []
        parts += [] if self.aborted is None else [f"aborted @{self.time + self.aborted:g}"]
        return " ".join(parts)


def without_one(asks: tuple[Ask, ...]) -> Iterator[tuple[Ask, ...]]:
    """All but one of them, as long as that leaves anybody."""
    return (asks[:i] + asks[i + 1 :] for i in range(len(asks)) if len(asks) > 1)


@dataclass(frozen=True)
class Scenario:
    """Requests, caps, and the companions by name (those of the kind that is checked are not used)."""

    asks: tuple[Ask, ...]
    slots: int
    tokens: int  # per step
    blocks: int
    size: int  # tokens per block
    prefix_cache: bool = False
    policy: str = "fcfs"
    batching: str = "continuous"
    admission: str = "prompt"
    preemption: str = "newest"
    predictor: str = "cap"

    @property
    def arrivals(self) -> list[Arrival]:
        """All requests, in the order of time."""
        return [ask.arrival for ask in self.asks]

    @property
    def load(self) -> int:
        """Tokens that everybody together computes if nothing is computed twice."""
        return sum(ask.prompt + ask.output for ask in self.asks)

    def smaller(self) -> Iterator[Scenario]:
        """Without one of the requests."""
        return (replace(self, asks=asks) for asks in without_one(self.asks))

    def events(self) -> Iterator[tuple[float, int, int]]:
        """(time, 0 for an arrival or 1 for an abort, index of the request)."""
        for i, ask in enumerate(self.asks):
            yield ask.time, 0, i
            if ask.aborted is not None:
                yield ask.time + ask.aborted, 1, i

    def __str__(self) -> str:
        cache = " with a prefix cache" if self.prefix_cache else ""
        caps = f"{self.slots} slots, {self.tokens} tokens a step, {self.blocks} blocks of {self.size}{cache}"
        others = f"{self.policy}, {self.batching}, {self.admission}, {self.preemption}, {self.predictor}"
        return f"{caps}; beside {others}; requests [{'; '.join(map(str, self.asks))}]"
