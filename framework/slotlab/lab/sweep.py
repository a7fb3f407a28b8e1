"""Many runs side by side: their table, their figures, and who beat whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from slotlab import signals
from slotlab.errors import PluginError, UserError, told
from slotlab.lab.complaints import ConfigError, explain
from slotlab.lab.folder import make_folder, write_json
from slotlab.lab.progress import console
from slotlab.lab.run import Place, Run
from slotlab.reading import read_json
from slotlab.tracking import TrackingError


def swept_name(settings: HydraConf, choices: Mapping[str, str], typed: set[str]) -> str:
    """The values of what is swept, as in `sjf` or `fcfs, static` or `fcfs, max_num_seqs=4`; a run with an oracle says so.

    `typed`: the keys that the command line sweeps over; an experiment adds those of its own.
    """
    keys, parts = typed | {str(key) for key in settings.sweeper.params or {}}, []
    for override in OverridesParser.create().parse_overrides(list(settings.overrides.task)):
        key = override.get_key_element().lstrip("+")
        if key in keys:
            value = override.get_value_element_as_str()
            parts.append(value if key in choices else f"{key.rpartition('.')[2]}={value}")
    name = ", ".join(parts) or choices["policy"]
    marked = choices["predictor"] == "none" or choices["predictor"] in re.split(r"\W+|_", name)
    return name if marked else f"{name} ({choices['predictor']})"


@dataclass
class Sweep:
    """The jobs of this process's sweep. A job that fails does not stop the others."""

    keys: set[str]  # that the command line sweeps over
    folder: Path | None = None
    experiment: str = "slotlab"
    jobs: list[dict[str, Any]] = field(default_factory=list)
    error: Exception | None = None  # of a single run, or of a job before it was one

    order: ExitStack = field(default_factory=ExitStack)  # held from the first job's end: there is a table to write

    @property
    def failed(self) -> bool:
        """Whether any job did, or could not be tracked."""
        return any("error" in job for job in self.jobs)

    def run(self, cfg: DictConfig, place: Place) -> None:
        """One job of the sweep."""
        if self.folder is None:
            self.folder, self.experiment = make_folder(place.sweep), place.experiment
            console.print(f"sweep: {self.folder}")
        signals.check()
        job, run = {"name": place.name, "folder": place.folder.name, "status": "KILLED"}, Run(cfg, place)
        self.jobs.append(job)
        self._write()
        try:
            run.execute()
        except Exception as error:
            job["error"] = self._describe(error, place)
        finally:
            job["status"] = run.meta.get("status", "FAILED")
            self.order.enter_context(signals.in_good_order())
            self._write()
        if "error" in job:
            console.print(f"{place.name}: {job['status']}: {job['error']}", style="red", markup=False)

    def _describe(self, error: Exception, place: Place) -> str:
        if isinstance(error, (UserError, PluginError, TrackingError, *ConfigError)):
            return explain(error)
        return f"{told(error)} (see {place.folder / 'error.txt'})"

    def _write(self) -> None:
        """The manifest, right at any moment: a job that is under way counts as KILLED."""
        assert self.folder is not None, "the sweep has no folder yet"
        write_json(self.folder / "sweep.json", {"experiment": self.experiment, "jobs": self.jobs})

    def close(self) -> None:
        """Write the sweep's table and figures."""
        if self.folder is None:
            return
        with signals.undisturbed():
            self._summarise(self.folder)
        self.order.close()

    def _summarise(self, folder: Path) -> None:
        from slotlab.lab.summary import summarise

        curves = [folder / job["folder"] / "curve.json" for job in self.jobs]
        summarise(folder, self.experiment, [curve.parent for curve in curves if curve.exists() and read_json(curve)])
        for job in self.jobs:
            if job["status"] != "FINISHED" or "error" in job:
                console.print(f"{job['name']}: {job['status']} {job.get('error', '')}", style="red", markup=False)
