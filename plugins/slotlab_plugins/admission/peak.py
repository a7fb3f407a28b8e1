"""Commit what is known, if what is predicted will fit."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Admission, RequestView, View


@dataclass
class Peak(Admission):
    """Start a request if the batch will fit in the cache at its peak; commit the known sequence ("past-future", LightLLM).

    A batch that decodes in step peaks when one of it ends. At the k-th longest request's end k are alive, each with what it
    holds now and as many new tokens as that one still had to go. Nobody is preempted if `predicted_output` is right and
    everybody gets a token in every step; with blocks of more than one token some room is lost to rounding. Whoever has outlived
    its prediction counts as one token from its end. With nothing running, the next request starts.
    """

    def reserve(self, req: RequestView, view: View) -> int | None:
        known = req.prompt_tokens + req.emitted
        fits = not view.running or self._peak([*view.running, req], view.block_size) <= view.total_blocks * view.block_size
        return known if fits else None

    @staticmethod
    def _peak(batch: list[RequestView], block_size: int) -> int:
        """Most tokens of KV that `batch` will take. The last token of an answer is never written to the cache."""
        rounding = block_size - 1
        ends = [(max(1, req.predicted_output - req.emitted), req.prompt_tokens + req.emitted - 1 + rounding) for req in batch]
        held = peak = 0
        for alive, (to_go, holds) in enumerate(sorted(ends, reverse=True), 1):
            held += holds
            peak = max(peak, held + alive * to_go)
        return peak


CHOICES = {"peak": Peak}
