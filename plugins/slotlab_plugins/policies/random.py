"""No order at all: what a policy must beat to have known something."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Key, Policy, RequestView, Streams


@dataclass
class Random(Policy):
    """In an order drawn from `seed`. Whether one request goes before another depends on the two and on the seed, not on the run.

    Two runs of one seed thus differ by what is compared, not by luck; several seeds show how much luck there is.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        self._streams = Streams(self.seed)

    def key(self, req: RequestView) -> Key:
        return self._streams.number(f"order/{req.seq}")


CHOICES = {"random": Random}
