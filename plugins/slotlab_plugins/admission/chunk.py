"""Commit the least."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Admission, Quiet, RequestView, View


@dataclass
class Chunk(Admission):
    """Commit only what the first chunk needs (vLLM 1 without its check of the whole prompt).

    Prompts may start that do not fit together; then some are preempted before their first token.
    """

    def reserve(self, req: RequestView, view: View) -> int | None:
        return 0  # the core raises it to the first chunk

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # free blocks only shrink while others decode


CHOICES = {"chunk": Chunk}
