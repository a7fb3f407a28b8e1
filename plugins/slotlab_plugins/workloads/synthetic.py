"""Requests that are drawn: an arrival process, laws for the lengths, tenants, shared prefixes, sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slotlab import Arrival, Streams, Workload, require
from slotlab.limits import MOST_REQUESTS, MOST_TOKENS
from slotlab_plugins.laws.arrivals import Arrivals, Floats
from slotlab_plugins.laws.lengths import Ints, Lengths, read_pairs
from slotlab_plugins.laws.links import Prefixes, Sessions
from slotlab_plugins.laws.tenants import TenantTraffic, check_tenants


@dataclass
class Synthetic(Workload):
    """Poisson arrivals (or other `arrivals`), lengths by law, tenants that share the traffic, shared prefixes, sessions.

    Every request carries the same cap `max_tokens`: a cap that followed the true length would give it away.
    `pairs`: a CSV with the columns prompt and output, whose rows are drawn with replacement instead of the length laws.
    """

    requests: int = 64
    prompt: Lengths = field(default_factory=lambda: Lengths(mean=64))
    output: Lengths = field(default_factory=lambda: Lengths(mean=32, high=256))
    max_tokens: int = 256
    tenants: list[TenantTraffic] = field(default_factory=lambda: [TenantTraffic()])
    arrivals: Arrivals = field(default_factory=Arrivals)
    pairs: str | None = None
    prefixes: Prefixes = field(default_factory=Prefixes)
    sessions: Sessions = field(default_factory=Sessions)

    def __post_init__(self) -> None:
        some = f"at least 1 (the workload would be empty) and at most {MOST_REQUESTS}"
        require(1 <= self.requests <= MOST_REQUESTS, "requests", self.requests, some)
        require(1 <= self.max_tokens <= MOST_TOKENS, "max_tokens", self.max_tokens, f"at least 1 and at most {MOST_TOKENS}")
        check_tenants(self.tenants)

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        turns = self.sessions.lengths(streams, self.requests)
        times, owners = self._openings(streams, len(turns))
        prompts, outputs = self._lengths(streams, np.repeat(owners, turns))
        thinks = self.sessions.thinks(streams, self.requests)
        prefixes = self.prefixes.draw(streams, len(turns))
        index = 0
        for time, owner, (group, said), count in zip(times, owners, prefixes, turns, strict=True):
            tenant = self.tenants[owner]
            link: dict[str, Any] = {"prefix_group": group, "prefix_tokens": said}
            for _ in range(count):
                output = min(outputs[index], self.max_tokens)
                yield Arrival(
                    time=float(time),
                    prompt_tokens=said + prompts[index],
                    max_tokens=self.max_tokens,
                    output_tokens=output,
                    tenant=tenant.name,
                    priority=tenant.priority,
                    deadline=tenant.deadline,
                    weight=tenant.weight,
                    **link,
                )
                said += prompts[index] + output
                index += 1
                link = {"follows": index - 1, "think": float(thinks[index])} if index < self.requests else {}

    def _openings(self, streams: Streams, n: int) -> tuple[Floats, Ints]:
        """When the first requests of `n` sessions come, and the index of the tenant that sends each.

        Tenants without arrivals of their own split one process by chance; the others are laid over it. Each process has a
        stream of its own.
        """
        shares = np.array([tenant.share for tenant in self.tenants])
        rates = shares / shares.sum() / self.sessions.turns
        common = np.array([i for i, tenant in enumerate(self.tenants) if tenant.arrivals is None], dtype=np.int64)
        times, owners = [], []
        if len(common):
            parts = np.cumsum(shares[common])
            rate = float(rates[common].sum()) if len(common) < len(shares) else 1 / self.sessions.turns
            times.append(self.arrivals.draw(streams("arrivals"), n, self.requests, rate))
            owners.append(common[np.searchsorted(parts, streams("tenants").random(n) * parts[-1], side="right")])
        for i, tenant in enumerate(self.tenants):
            if tenant.arrivals:
                times.append(tenant.arrivals.draw(streams(f"arrivals/{tenant.name}"), n, self.requests, rates[i]))
                owners.append(np.full(n, i))
        merged = np.concatenate(times)
        first = np.argsort(merged, kind="stable")[:n]
        return merged[first], np.concatenate(owners)[first]

    def _lengths(self, streams: Streams, owners: Ints) -> tuple[Sequence[int], Sequence[int]]:
        """Own prompt tokens and output tokens of each request.

        Every law draws for all requests from the same stream and is used where it holds, so that no law moves another.
        """
        n = len(owners)
        if self.pairs is not None:
            prompts, outputs = read_pairs(self.pairs)
            rows = streams("pairs").integers(len(prompts), size=n)
            return prompts[rows].tolist(), outputs[rows].tolist()
        prompt_laws = [tenant.prompt or self.prompt for tenant in self.tenants]
        output_laws = [tenant.output or self.output for tenant in self.tenants]
        return by_owner(prompt_laws, streams, "prompts", owners), by_owner(output_laws, streams, "outputs", owners)


def by_owner(laws: Sequence[Lengths], streams: Streams, stream: str, owners: Ints) -> Sequence[int]:
    """The value of each request under the law of its owner."""
    if all(law is laws[0] for law in laws):
        return laws[0].draw(streams(stream), len(owners))
    table = np.array([law.draw(streams(stream), len(owners)) for law in laws])
    values: list[int] = table[owners, np.arange(len(owners))].tolist()
    return values


CHOICES = {"poisson": Synthetic}
