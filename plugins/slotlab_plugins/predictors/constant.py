"""The same for everybody."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Predictor, Request, require
from slotlab.limits import MOST_TOKENS


@dataclass
class Constant(Predictor):
    """`tokens` for everybody, or the cap where that is less: above it, policies that sort by length act as fcfs."""

    tokens: int = 128

    def __post_init__(self) -> None:
        require(1 <= self.tokens <= MOST_TOKENS, "tokens", self.tokens, f"at least 1 and at most {MOST_TOKENS}")

    def predict(self, req: Request, truth: int | None) -> int:
        return self.tokens


CHOICES = {"constant": Constant}
