"""Many runs side by side: their table, their figures, and who beat whom."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from slotlab.errors import PluginError, UserError
from slotlab.lab.complaints import ConfigError, explain
from slotlab.lab.folder import make_folder, read_json, write_json
from slotlab.lab.progress import console
from slotlab.lab.run import Place, Run
from slotlab.tracking import TrackingError


def swept_name(settings: HydraConf, choices: Mapping[str, str]) -> str:
    """The values of what is swept, as in `sjf` or `fcfs, static` or `fcfs, max_num_seqs=4`; a run with an oracle says so."""
    parser = OverridesParser.create()
    typed = parser.parse_overrides([word for word in settings.overrides.task if not word.startswith("experiment=")])
    fixed = {word.split("=", 1)[0] for word in settings.overrides.task} - swept_keys(settings)
    parts = []
    for override in typed:
        key = override.get_key_element().lstrip("+")
        if key in fixed:
            continue
        value = override.get_value_element_as_str()
        parts.append(value if key in choices else f"{key.rpartition('.')[2]}={value}")
    name = ", ".join(parts) or choices["policy"]
    marked = choices["predictor"] == "none" or choices["predictor"] in re.split(r"\W+|_", name)
    return name if marked else f"{name} ({choices['predictor']})"


def swept_keys(settings: HydraConf) -> set[str]:
    """What the command line or the experiment sweeps over: whatever differs between the jobs of this sweep."""
    return set(SWEPT) | {str(key) for key in settings.sweeper.params or {}}


SWEPT: set[str] = set()


def note_swept(words: list[str]) -> None:
    """Remember which words of the command line are sweeps."""
    for word in words:
        if word.startswith("-") or "=" not in word:
            continue
        if OverridesParser.create().parse_override(word).is_sweep_override():
            SWEPT.add(word.split("=", 1)[0].lstrip("+"))


@dataclass
class Sweep:
    """The jobs of this process's sweep. A job that fails does not stop the others."""

    folder: Path | None = None
    experiment: str = "slotlab"
    jobs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether any job did."""
        return any(job["status"] == "FAILED" for job in self.jobs)

    def run(self, cfg: DictConfig, place: Place) -> None:
        """One job of the sweep."""
        if self.folder is None:
            self.folder, self.experiment = make_folder(place.sweep), place.experiment
            console.print(f"sweep: {self.folder}")
        job = {"name": place.name, "folder": place.folder.name, "status": "KILLED"}
        self.jobs.append(job)
        try:
            Run(cfg, place).execute()
            job["status"] = "FINISHED"
        except Exception as error:
            job |= {"status": "FAILED", "error": self._describe(error, place)}
            console.print(f"{place.name}: FAILED: {job['error']}", style="red", markup=False)

    def _describe(self, error: Exception, place: Place) -> str:
        if isinstance(error, (UserError, PluginError, TrackingError, *ConfigError)):
            return explain(error)
        path = place.folder / "error.txt"
        path.write_text("".join(traceback.format_exception(error)))
        return f"{type(error).__name__}: {error} (see {path})"

    def close(self) -> None:
        """Write the sweep's manifest, table and figures."""
        if self.folder is None:
            return
        from slotlab.lab.summary import summarise

        write_json(self.folder / "sweep.json", {"experiment": self.experiment, "jobs": self.jobs})
        done = [self.folder / job["folder"] for job in self.jobs if (self.folder / job["folder"] / "curve.json").exists()]
        summarise(self.folder, [folder for folder in done if read_json(folder / "meta.json")["scalars"]])
        for job in self.jobs:
            if job["status"] != "FINISHED":
                console.print(f"{job['name']}: {job['status']} {job.get('error', '')}", style="red", markup=False)
