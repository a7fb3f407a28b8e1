"""A bound on waiting, in time."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Quiet, RequestView, View, require
from slotlab.limits import LATEST
from slotlab_plugins.promotion import Promotion


@dataclass
class Aging(Promotion):
    """Whoever has waited for more than `after` seconds since it arrived goes first, in the order of arrival."""

    after: float = 10.0

    def __post_init__(self) -> None:
        require(0 <= self.after <= LATEST, "after", self.after, f"at least 0 and at most {LATEST:g}")

    def overdue(self, req: RequestView, view: View) -> bool:
        return view.now >= req.arrival + self.after

    def quiet(self, view: View) -> Quiet:
        """Until the oldest is due."""
        inner = self.inner.quiet(view)
        comes_due = view.waiting.oldest().arrival + self.after if view.waiting else view.now
        return inner._replace(until=min(inner.until, comes_due)) if comes_due > view.now else inner


CHOICES = {"aging": Aging}
