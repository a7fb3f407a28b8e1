"""Stall-free batching."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Phase, StepBudget, View
from slotlab_plugins.batching.continuous import Continuous


@dataclass
class Sarathi(Continuous):
    """Every decode goes first, then chunks of prompts fill the step up to `max_num_batched_tokens` (Sarathi-Serve, 2024).

    So no prefill ever delays a decode by more than one step of that size. Where nobody reorders or pauses running requests,
    continuous batching comes to the same: whoever decodes started before whoever still prefills.
    """

    def budget(self, view: View) -> StepBudget:
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens, Phase.DECODE_FIRST)


CHOICES = {"sarathi": Sarathi}
