"""Requests of independent clients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from slotlab import Arrival, Streams, Tenant, UserError, Workload, require


@dataclass
class Lengths:
    """Token counts, clipped to `low` .. `high`: `lognormal` with this mean and `sigma` (of the logarithm), or `fixed`."""

    law: str = "lognormal"
    mean: float = 64.0
    sigma: float = 0.7
    low: int = 1
    high: int = 512

    def __post_init__(self) -> None:
        require(self.law in ("lognormal", "fixed"), "law", self.law, "lognormal or fixed")
        require(self.mean >= 1, "mean", self.mean, "at least 1")
        require(self.sigma >= 0, "sigma", self.sigma, "at least 0")
        require(1 <= self.low <= self.high, "low", self.low, f"from 1 to high={self.high}")

    def draw(self, rng: np.random.Generator, n: int) -> list[int]:
        """`n` token counts."""
        if self.law == "fixed":
            values = np.full(n, self.mean)
        else:
            values = rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, n)
        return [int(v) for v in np.clip(np.rint(values), self.low, self.high)]


@dataclass
class Poisson(Workload):
    """Poisson arrivals at the load's rate, with lognormal or fixed lengths, from tenants that share the traffic.

    Every request carries the same cap `max_tokens`: a cap that followed the true length would give it away.
    """

    requests: int = 64
    prompt: Lengths = field(default_factory=lambda: Lengths(mean=64))
    output: Lengths = field(default_factory=lambda: Lengths(mean=32, high=256))
    max_tokens: int = 256
    tenants: list[Tenant] = field(default_factory=lambda: [Tenant()])

    def __post_init__(self) -> None:
        require(self.requests >= 1, "requests", self.requests, "at least 1 (the workload would be empty)")
        require(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        check_tenants(self.tenants)

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        n = self.requests
        times = np.cumsum(streams("arrivals").exponential(size=n))
        prompts = self.prompt.draw(streams("prompts"), n)
        outputs = self.output.draw(streams("outputs"), n)
        shares = np.cumsum([tenant.share for tenant in self.tenants])
        owners = np.searchsorted(shares, streams("tenants").random(n) * shares[-1], side="right")
        for time, prompt, output, owner in zip(times, prompts, outputs, owners, strict=True):
            tenant = self.tenants[owner]
            yield Arrival(
                time=float(time),
                prompt_tokens=prompt,
                max_tokens=self.max_tokens,
                output_tokens=min(output, self.max_tokens),
                tenant=tenant.name,
                priority=tenant.priority,
                weight=tenant.weight,
            )


def check_tenants(tenants: list[Tenant]) -> None:
    """Refuse tenants that cannot share traffic."""
    names = [tenant.name for tenant in tenants]
    if not names or len(set(names)) < len(names):
        raise UserError(f"tenants={names}: must be one or more, with names of their own")
    for tenant in tenants:
        require(tenant.share > 0, f"tenants[{tenant.name}].share", tenant.share, "greater than 0")
        require(tenant.weight > 0, f"tenants[{tenant.name}].weight", tenant.weight, "greater than 0")


CHOICES = {"poisson": Poisson}
