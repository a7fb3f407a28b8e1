"""Iteration-level batching."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Batching, Quiet, View


@dataclass
class Continuous(Batching):
    """Whoever waits may join at every step, within a token budget; long prompts are computed in chunks (Orca, vLLM)."""

    def quiet(self, view: View) -> Quiet:
        return FOREVER


CHOICES = {"continuous": Continuous}
