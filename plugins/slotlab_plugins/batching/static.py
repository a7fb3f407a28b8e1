"""Request-level batching."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from slotlab import FOREVER, Batching, Closed, Open, Quiet, View


@dataclass
class Static(Batching):
    """The next batch starts when the last request of this one has finished; until then its slots stay held.

    `pad`: the batch is computed as a rectangle, as engines without packing do: every prompt as long as the longest in the
    step, and a row for each request that has ended already (FasterTransformer). What that wastes is the padding tax. Pads do
    not count towards `max_num_batched_tokens`.
    """

    pad: bool = False

    keeps_slots: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._size = 0  # of the batch, those included who have ended

    def gate(self, view: View) -> Open | Closed:
        return Closed() if view.running else Open()

    def padding(self, tokens: Collection[int], view: View) -> int:
        if not self.pad:
            return 0
        self._size = len(view.running) if view.last_start == view.step else max(self._size, len(view.running))
        return self._size * max(tokens) - sum(tokens)

    def quiet(self, view: View) -> Quiet:
        return FOREVER


CHOICES = {"static": Static}
