"""Request-level batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from slotlab import FOREVER, Batching, Closed, Open, Quiet, View


@dataclass
class Static(Batching):
    """The next batch starts when the last request of this one has finished; until then its slots stay held."""

    keeps_slots: ClassVar[bool] = True

    def gate(self, view: View) -> Open | Closed:
        return Closed() if view.running else Open()

    def quiet(self, view: View) -> Quiet:
        return FOREVER


CHOICES = {"static": Static}
