"""One run = one curve: compose, open, serve every load point and repeat, record, track."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import DictConfig, OmegaConf

from slotlab import signals
from slotlab.errors import blame
from slotlab.lab.bench import Bench
from slotlab.lab.config import build, flatten, science
from slotlab.lab.ending import Ending
from slotlab.lab.facts import facts
from slotlab.lab.folder import make_folder, stamp, write_json
from slotlab.lab.progress import Progress
from slotlab.lab.remarks import PREFIX, add, composed, split
from slotlab.lab.replies import draws, opened, points
from slotlab.lab.replies import facts as facts_of
from slotlab.lab.report import print_curve, print_facts
from slotlab.lab.tracked import TrackedRun
from slotlab.record.recorder import Recorder
from slotlab.tracking import RunInfo, TrackingError
from slotlab.workload import Arrival, Point, digest
from slotlab.writing import write_text


@dataclass
class Place:
    """Where a run belongs, and what it is called."""

    folder: Path
    sweep: Path  # the sweep's folder, or the run's own
    cwd: Path  # where the command was typed
    name: str
    experiment: str
    choices: Mapping[str, str]
    plugins: Mapping[str, str]  # version by plugin


@dataclass
class Run:
    """A composed experiment on its way from config to curve."""

    cfg: DictConfig
    place: Place
    recorders: list[Recorder] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of the curve
    series: list[Any] = field(default_factory=list)  # one per load point and repeat
    meta: dict[str, Any] = field(default_factory=dict)
    points: Sequence[Point] = ()
    arrivals: Sequence[Sequence[Arrival]] = ()  # of each repeat, at unit rate
    ref_index: int = 0  # of the point that stands for the curve
    tracking: TrackedRun = field(default_factory=TrackedRun)
    began: float = field(default_factory=perf_counter)

    def execute(self) -> None:
        """Run to the end, or keep what there is: the folder and the tracker learn how it ended."""
        self.lab = build(self.cfg)
        folder = make_folder(self.place.folder)
        write_text(folder / "config.yaml", OmegaConf.to_yaml(self.cfg, resolve=True))
        self.meta = {"name": self.place.name, "status": "RUNNING", "started": stamp(), **self._identity()}
        write_json(folder / "meta.json", self.meta)
        ending = Ending(self)
        with signals.last_words(ending.at_once):
            try:
                self._open()
                with signals.in_good_order():
                    self._measure()
                ending.status = "FINISHED"
            except BaseException as error:
                ending.blame(error)
                raise
            finally:
                with signals.in_good_order():
                    ending.keep()
        signals.check()
        if self.tracking.refusal:
            raise TrackingError(f"{self.tracking.refusal}; the run is whole in {folder}")

    def _open(self) -> None:
        """All that comes before the first request: the store, the engine, the requests, the points."""
        from slotlab.record.arrivals import arrivals_table
        from slotlab.record.schema import write_table

        lab, place = self.lab, self.place
        self.tracking.open(lab.tracking, place.experiment, place.cwd)
        signals.check()
        caps = lab.batching.max_num_seqs, lab.batching.max_num_batched_tokens
        self.meta["engine"] = self._told(opened(lab.engine, lab.model, *caps))
        signals.check()
        self.bench = bench = Bench(self.cfg, lab, place.sweep, place.choices["predictor"])
        self.arrivals = arrivals = [bench.arrivals(repeat) for repeat in range(draws(lab.load))]
        with blame(lab.workload):
            told = lab.workload.facts()
        write_table(arrivals_table(arrivals), place.folder / "arrivals.parquet")
        self.meta |= {"workload": self._told(facts_of(lab.workload, "facts", told)), "workload_digest": digest(arrivals)}
        if len(arrivals) > 1 and arrivals[0] == arrivals[1]:
            self.meta["workload"]["repeats"] = "the same requests each time: their spread is the engine's noise alone"
        self.meta["weights"] = {arrival.tenant: arrival.weight for some in arrivals for arrival in some}
        self.points, self.ref_index = points(lab.load, bench, place.choices["load"])
        self.meta["ref_point"] = self.ref_index
        signals.check()
        print_facts(self)

    def _measure(self) -> None:
        from slotlab.record.series import by_name

        self.tracking.start(self._info())
        self.meta["mlflow_run"] = self.tracking.run_id
        total = len(self.points) * sum(map(len, self.arrivals[: self.lab.load.repeats]))
        with Progress(self.place.name, total) as progress:
            for index, point in enumerate(self.points):
                self._serve_point(index, point, progress)
                numbers = {name: value for name, value in self.rows[-1].items() if isinstance(value, float | int)}
                self.tracking.point(index, numbers, by_name(self.series[-self.rows[-1]["repeats"]]))  # of the first repeat
        print_curve(self)

    def _serve_point(self, index: int, point: Point, progress: Progress) -> None:
        import pandas as pd

        from slotlab.lab.figures import repeat_figures
        from slotlab.record.metrics import aggregate, verdict
        from slotlab.record.series import series_table
        from slotlab.record.tables import frames

        bench, figures, tables, early = self.bench, [], [], False
        with bench.repeats(index) as enough:
            for repeat, some in enumerate(self.arrivals):
                recorder = bench.recorder(index, repeat, some, progress.advance)
                self.recorders.append(recorder)
                bench.serve(point, repeat, some, recorder)
                self._remark(recorder.remarks, progress)
                requests, steps = frames(recorder)
                figures.append(repeat_figures(bench, point, repeat, some, requests, steps))
                tables.append(requests)
                self.series.append(series_table(index, repeat, requests, steps))
                early = early or recorder.ended_early
                if enough(figures):
                    break
        if note := self.lab.load.remark(figures):
            self._remark({"load": f"point {index}: {note}"}, progress)
        label = {"point": index, "rate": point.rate, "concurrency": point.concurrency, "ended_early": early or None}
        row: dict[str, Any] = {name: value for name, value in label.items() if value is not None}
        if point.rate is not None:
            row["verdict"] = verdict(pd.concat(tables))
        self.rows.append({**row, "repeats": len(figures), **aggregate(figures)})
        progress.point(self.rows[-1])

    def _told(self, facts: Mapping[str, str]) -> dict[str, str]:
        """Facts, once the remarks among them are taken out."""
        plain, remarks = split(facts)
        self.meta["remarks"] |= remarks
        return plain

    def _remark(self, remarks: Mapping[str, str], progress: Progress) -> None:
        for key, sentence in remarks.items():
            add(self.meta["remarks"], key, sentence)
            progress.remark(sentence)

    def scalars(self) -> dict[str, float]:
        """One number each for the whole curve."""
        from slotlab.record.metrics import curve_scalars

        verdicts = [row.get("verdict", "undetermined") for row in self.rows]
        return curve_scalars(self.rows, verdicts, min(self.ref_index, len(self.rows) - 1)) if self.rows else {}

    def _identity(self) -> dict[str, Any]:
        plain, lab = science(self.cfg), self.lab
        others = {name: value for name, value in plain.items() if name not in ("policy", "modifier", "predictor")}
        return {
            "run_key": short_hash([plain, dict(self.place.choices), dict(self.place.plugins)]),
            "setting": short_hash(others),  # equal where runs differ in their policies alone
            "choices": dict(self.place.choices),
            "plugins": dict(self.place.plugins),
            "oracle": lab.predictor.oracle,
            "remarks": composed(lab),
            "time_unit": lab.engine.time_unit,
            "real": lab.engine.real,  # whose runs have noise
            "own_times": bool(lab.workload.own_times),
            "cache": "reset",  # before each point and repeat, by `Engine.begin`
            "facts": facts(),
        }

    def _info(self) -> RunInfo:
        from slotlab.record.schema import METRICS_VERSION, SCHEMA_VERSION

        meta, place = self.meta, self.place
        tags = {
            "sweep": place.sweep.name if place.sweep != place.folder else "none",
            "run_key": meta["run_key"],
            "folder": str(place.folder),
            "time_unit": meta["time_unit"],
            "cache": meta["cache"],
            "oracle": str(meta["oracle"]).lower(),
            "schema_version": SCHEMA_VERSION,
            "metrics_version": METRICS_VERSION,
            **{f"choice.{group}": name for group, name in place.choices.items()},
            **{f"plugin.{name}": version for name, version in place.plugins.items()},
            **{f"engine.{name}": value for name, value in meta["engine"].items()},
            **{f"workload.{name}": value for name, value in meta["workload"].items()},
            **{PREFIX + key: sentence for key, sentence in meta["remarks"].items()},
            **meta["facts"],
        }
        params = {**flatten(science(self.cfg)), **place.choices}  # a choice without options is its name, not `{}`
        return RunInfo(place.name, params, tags, place.choices["workload"], meta["workload_digest"])


def short_hash(value: Any) -> str:
    """16 hexadecimal digits that stand for a plain value."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
