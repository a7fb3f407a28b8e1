"""Commit what is known, if what is predicted will fit."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Admission, RequestView, View


@dataclass
class Peak(Admission):
    """Start a request if the batch will fit in the cache at its peak; commit the known sequence ("past-future", LightLLM).

    A batch that decodes in step peaks when one of it ends. At the k-th longest request's end k are alive, each with what it
    holds now and as many new tokens as that one still had to go; what several of them share is held once, until the longest of
    them ends. Nobody is preempted if `predicted_output` is right and everybody gets a token in every step; with blocks of more
    than one token some room is lost to rounding. Whoever has outlived its prediction counts as one token from its end. With
    nothing running, the next request starts.
    """

    def reserve(self, req: RequestView, view: View) -> int | None:
        known = req.prompt_tokens + req.emitted
        if not view.running or view.blocks_to_start(req) > view.free_blocks:  # a shortage is for the core to see
            return known
        return known if self._peak([*view.running, req], view) <= view.total_blocks * view.block_size else None

    @staticmethod
    def _peak(batch: list[RequestView], view: View) -> int:
        """Most tokens of KV that `batch` will take. The last token of an answer is never written to the cache."""
        longest, size = sorted(batch, key=to_go, reverse=True), view.block_size
        held = peak = 0
        for alive, (req, shared) in enumerate(zip(longest, view.blocks_in_common(longest), strict=True), 1):
            held += req.prompt_tokens + req.emitted - 1 + (size - 1) - shared * size
            peak = max(peak, held + alive * to_go(req))
        return peak


def to_go(req: RequestView) -> int:
    """Tokens that are still expected of `req`."""
    return max(1, req.predicted_output - req.emitted)


CHOICES = {"peak": Peak}
