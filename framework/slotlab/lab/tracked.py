"""A run's trace in the tracker. What the tracker refuses costs no measurement: it is said at once, and kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotlab import signals
from slotlab.lab.progress import console
from slotlab.tracking import NoTracker, RunInfo, Tracker, Tracking, TrackingError, open_tracker, resolve_uri


@dataclass
class TrackedRun:
    """A tracker that says its refusal once, in `refusal`, and is left alone from then on."""

    tracker: Tracker = field(default_factory=NoTracker)
    refusal: str | None = None

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, once it is started."""
        return self.tracker.run_id

    def open(self, tracking: Tracking, experiment: str, cwd: Path) -> None:
        """Find the store. TrackingError for an address that can be none."""
        if tracking.kind != "none":
            resolve_uri(tracking.uri, cwd)
        self._try(lambda: vars(self).update(tracker=open_tracker(tracking, experiment, cwd)))

    def start(self, info: RunInfo) -> None:
        """Begin the run: its status is RUNNING from here on."""
        with signals.undisturbed():  # or it would be RUNNING, and nobody would know its id
            self._try(lambda: self.tracker.start(info))

    def point(self, index: int, numbers: Mapping[str, float], series: Mapping[str, Mapping[int, float]]) -> None:
        """A load point is complete."""
        self._try(lambda: self.tracker.point(index, numbers))
        self._try(lambda: self.tracker.series(index, series))

    def finish(self, status: str, scalars: Mapping[str, float], rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """End the run, also after a refusal."""
        if not self.run_id:
            return
        refusal, self.refusal = self.refusal, None
        self._try(lambda: self.tracker.finish(status, scalars, [_table_row(row) for row in rows], folder))
        self.refusal = refusal or self.refusal
        if link := self.tracker.link():
            console.print(f"mlflow: {link}")

    def remark(self, remarks: Mapping[str, str], name: str) -> None:
        """Send what turned out while the run went on, and the name that it has since."""
        if self.run_id:
            self._try(lambda: self.tracker.remark(remarks, name))

    def kill(self) -> None:
        """Have the run ended by what this process becomes: it may hold the database's lock, and may not wait."""
        if self.run_id and self.tracker.uri:
            self.refusal = self.refusal or "the process was ended before the tracker had all of it"
            os.environ["MLFLOW_TRACKING_URI"] = self.tracker.uri
            signals.become("-m", "slotlab.tracking.kill", self.run_id)

    def _try(self, ask: Callable[[], None]) -> None:
        if self.refusal is None:
            try:
                ask()
            except TrackingError as error:
                self.refusal = str(error)
                console.print(f"not tracked: {error}", style="red", markup=False)


def _table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A load point for MLflow's table view, which groups by the first column and shows the second."""
    first = ("rate", "concurrency", "ttft_mean", "e2e_mean", "output_throughput")
    return {name: row[name] for name in (*first, *row) if name in row}
