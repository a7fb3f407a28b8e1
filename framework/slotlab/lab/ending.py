"""How a run ends: its folder keeps what was measured, then the tracker learns of it, and each says what is true of itself."""

from __future__ import annotations

import json
import traceback
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from slotlab import signals
from slotlab.core.outcome import ask
from slotlab.errors import PluginError, UserError, told
from slotlab.lab.facts import peak_mib
from slotlab.lab.folder import stamp, write_curve, write_json
from slotlab.lab.progress import console
from slotlab.lab.remarks import add, full_name
from slotlab.lab.report import print_cost
from slotlab.tracking import TrackingError
from slotlab.writing import write_text

if TYPE_CHECKING:
    from slotlab.lab.run import Run


@dataclass
class Ending:
    """The end of `run`, whatever it is: status FINISHED, FAILED or KILLED."""

    run: Run
    status: str = "FAILED"
    kept: bool = False

    def blame(self, error: BaseException) -> None:
        """Remember why the run did not finish; what is nobody's fault but ours with its traceback."""
        if isinstance(error, KeyboardInterrupt | signals.Stopped):
            self.status = "KILLED"
            return
        self.status = "FAILED"
        self.run.meta["error"] = told(error)
        if not isinstance(error, UserError | TrackingError):
            with suppress(OSError):  # on a full disk the line must do
                write_text(self.run.place.folder / "error.txt", "".join(traceback.format_exception(error)))

    def keep(self) -> None:
        """The folder first, and whole; a tracker may take its time, and a second signal ends that."""
        run = self.run
        try:
            with signals.undisturbed():
                self._keep_folder()
            if run.rows:
                print_cost(run)
        finally:
            try:
                self._close()
            finally:
                run.tracking.finish(self.status, run.scalars(), run.rows, run.place.folder)
                run.tracking.remark(run.meta["remarks"], run.meta["name"])
                self._mark()

    def _close(self) -> None:
        """Close the engine. What that raises hides no error before it."""
        try:
            ask(self.run.lab.engine, "close", self.run.lab.engine.close)
        except (PluginError, UserError) as error:
            if self.status == "FINISHED":
                self.blame(error)
                raise
            console.print(f"{self.run.place.name}: {error}", style="red", markup=False)

    def at_once(self) -> None:
        """The last words of a process that ends at once. What the step under way had not recorded yet is not there."""
        if not self.kept:
            self.status = "KILLED"
            if self.run.recorders:
                with suppress(Exception):
                    self._keep_folder()
        self.run.tracking.kill()
        self._mark()

    def _keep_folder(self) -> None:
        from slotlab.record.charts import draw_curve
        from slotlab.record.tables import write_series, write_tables

        run, folder = self.run, self.run.place.folder
        try:
            write_tables(run.recorders, folder)
            write_series(run.series, folder)
            write_curve(folder, run.rows)
            if run.rows:
                draw_curve(run.rows, folder / "curve.png", title=run.place.name, time_unit=run.lab.engine.time_unit)
            run.meta["scalars"] = run.scalars()
            self.kept = True
        except BaseException as error:
            self.blame(error)
            raise
        finally:
            self._mark()

    def _mark(self) -> None:
        """Write how it ended. A file that is there can be overwritten even where no new one can be written."""
        run, path = self.run, self.run.place.folder / "meta.json"
        run.meta |= {"status": self.status, "ended": stamp()}
        if self.status != "FINISHED" and len(run.rows) < len(run.points):
            add(run.meta["remarks"], "ended_early", f"ended after {len(run.rows)} of {len(run.points)} load points")
        run.meta["name"] = full_name(run.place.name, run.meta["remarks"], run.recorders)
        if run.tracking.refusal:
            run.meta["untracked"] = run.tracking.refusal
        run.meta |= {"wall_s": round(perf_counter() - run.began, 3), "peak_mib": peak_mib()}
        try:
            write_json(path, run.meta)
        except OSError:
            short = {name: run.meta[name] for name in ("name", "status", "started", "ended", "error") if name in run.meta}
            with suppress(OSError), path.open("r+") as file:
                file.write(json.dumps(short))
                file.truncate()
