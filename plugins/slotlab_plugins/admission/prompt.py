"""Commit what is known."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Admission, Quiet, RequestView, View, require


@dataclass
class Prompt(Admission):
    """Commit the whole known sequence at the start, and keep a `watermark` share of all blocks free unless nothing runs."""

    watermark: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.watermark < 1, "watermark", self.watermark, "at least 0 and below 1")

    def reserve(self, req: RequestView, view: View) -> int | None:
        known = req.prompt_tokens + req.emitted
        spare = view.free_blocks - view.blocks_for(known)
        return known if not view.running or spare >= self.watermark * view.total_blocks else None

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # free blocks only shrink while others decode


CHOICES = {"prompt": Prompt}
