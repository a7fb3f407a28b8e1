"""Iteration-level batching of whole prompts."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Batching, Quiet, StepBudget, View


@dataclass
class Orca(Batching):
    """Whoever waits may join at every step, beside the decodes, if the step has tokens for all of its prompt (Orca, 2022).

    A sequence longer than `max_num_batched_tokens` is never whole: it alone is cut, and takes what each step has left. The
    systems that batch whole prompts need a budget as large as the context (vLLM 0) or raise it to that (SGLang).
    With `admission=reserve_max` this is the paper's scheduler.
    """

    def budget(self, view: View) -> StepBudget:
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens, chunked=False)

    def quiet(self, view: View) -> Quiet:
        return FOREVER


CHOICES = {"orca": Orca}
