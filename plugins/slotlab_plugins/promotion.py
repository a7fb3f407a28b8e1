"""What modifiers share that let some waiting requests go before all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slotlab import Misfit, Modifier, Quiet, RequestView, Verdict, View, Waiting


@dataclass
class Promotion(Modifier):
    """Whoever is due goes next, and nobody starts past one who is due and does not fit. Whom it displaces is up to the policy."""

    def overdue(self, req: RequestView, view: View) -> bool:
        """Whether nobody may pass `req` any more."""
        raise NotImplementedError

    def due(self, waiting: Waiting, view: View) -> RequestView | None:
        """Who must go next, if anybody must: by default the one that arrived first, if it is overdue."""
        oldest = waiting.oldest()
        return oldest if self.overdue(oldest, view) else None

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return self._interleave(waiting, view)

    def _interleave(self, waiting: Waiting, view: View) -> Iterator[RequestView]:
        rest, offered = iter(self.inner.order(waiting, view)), set[RequestView]()
        while True:
            due = self.due(waiting, view) if waiting else None
            if due in offered:  # it was skipped before it was due
                return
            req = due or next((other for other in rest if other not in offered), None)
            if req is None:
                return
            offered.add(req)
            yield req

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        verdict = self.inner.on_misfit(req, why, view)
        return Verdict.STOP if verdict is Verdict.SKIP and self.overdue(req, view) else verdict

    def quiet(self, view: View) -> Quiet:
        """By default who is due changes only as requests come, start and go."""
        return self.inner.quiet(view)
