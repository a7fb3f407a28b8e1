"""All or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slotlab import Predictor, Request


@dataclass
class NoPredictor(Predictor):
    """No estimate: policies read `max_tokens`, the cap that the client sent."""


@dataclass
class Oracle(Predictor):
    """The true output length. No deployed system has it: runs with it are marked."""

    oracle: ClassVar[bool] = True

    def predict(self, req: Request, truth: int | None) -> int:
        assert truth is not None, "the workload does not know its output lengths"
        return truth


CHOICES = {"none": NoPredictor, "oracle": Oracle}
