"""The same for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Predictor, Request, require


@dataclass
class Constant(Predictor):
    """`tokens` for everybody, or the cap where that is less: above it, policies that sort by length act as fcfs."""

    tokens: int = 128

    def __post_init__(self) -> None:
        require(self.tokens >= 1, "tokens", self.tokens, "at least 1")

    def predict(self, req: Request, truth: int | None) -> int:
        return self.tokens


CHOICES = {"constant": Constant}
