"""Prefills before decodes."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Phase, StepBudget, View
from slotlab_plugins.batching.orca import Orca


@dataclass
class PrefillFirst(Orca):
    """While anybody may start, steps are whole prompts alone and the decodes wait (vLLM 0, SGLang).

    First tokens come soonest, and each burst of arrivals makes a gap in everybody else's answer. A sequence longer than
    `max_num_batched_tokens` is cut, as under orca.
    """

    def budget(self, view: View) -> StepBudget:
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens, Phase.PREFILL_ONLY, chunked=False)


CHOICES = {"prefill_first": PrefillFirst}
