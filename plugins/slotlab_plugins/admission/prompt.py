"""Commit what is known."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Admission, Quiet, RequestView, View, require


@dataclass
class Prompt(Admission):
    """Commit the whole known sequence at the start, and leave a `watermark` share of all blocks free unless nothing runs.

    What a start takes are the blocks that it does not share with a running request.
    """

    watermark: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.watermark < 1, "watermark", self.watermark, "at least 0 and below 1")

    def reserve(self, req: RequestView, view: View) -> int | None:
        known = req.prompt_tokens + req.emitted
        if self.watermark and view.running:
            spare = view.free_blocks - view.blocks_to_start(req)
            if 0 <= spare < self.watermark * view.total_blocks:  # below 0 it is a shortage, which the core sees
                return None
        return known

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # free blocks only shrink while others decode


CHOICES = {"prompt": Prompt}
