"""One run = one curve: compose, open, serve every load point and repeat, record, track."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from slotlab.lab.bench import Bench
from slotlab.lab.config import build, flatten, science
from slotlab.lab.facts import facts
from slotlab.lab.folder import make_folder, stamp, write_curve, write_json
from slotlab.lab.progress import Progress
from slotlab.lab.report import print_curve, print_engine
from slotlab.record.recorder import Recorder
from slotlab.tracking import RunInfo, Tracker, open_tracker
from slotlab.workload import Arrival, Point, digest


class Terminated(BaseException):
    """SIGTERM arrived."""


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
    meta: dict[str, Any] = field(default_factory=dict)

    def execute(self) -> None:
        """Run to the end, or keep what there is: the folder and the tracker learn how it ended."""
        self.lab = build(self.cfg)
        folder = make_folder(self.place.folder)
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(self.cfg, resolve=True))
        self.meta = {"name": self.place.name, "status": "RUNNING", "started": stamp(), **self._identity()}
        write_json(folder / "meta.json", self.meta)
        tracker, status = None, "FAILED"
        try:
            tracker = open_tracker(self.lab.tracking, self.place.experiment, self.place.cwd)
            self._measure(tracker)
            status = "FINISHED"
        except (KeyboardInterrupt, Terminated):
            status = "KILLED"
            raise
        except BaseException as error:
            self.meta["error"] = " ".join(f"{type(error).__name__}: {error}".split())
            raise
        finally:
            self.lab.engine.close()
            self._keep(status)
            if tracker and tracker.run_id:
                tracker.finish(status, self.scalars(), [table_row(row) for row in self.rows], folder)

    def _measure(self, tracker: Tracker) -> None:
        lab, place = self.lab, self.place
        self.meta["engine"] = dict(lab.engine.open(lab.model))
        bench = Bench(self.cfg, lab, place.sweep, place.choices["predictor"])
        arrivals = [bench.arrivals(repeat) for repeat in range(lab.load.repeats)]
        self.meta["workload_digest"] = digest(arrivals)
        points = lab.load.points(bench)
        print_engine(self)
        tracker.start(self._info())
        self.meta["mlflow_run"] = tracker.run_id
        total = len(points) * sum(map(len, arrivals))
        with Progress(place.name, total) as progress:
            for index, point in enumerate(points):
                self._serve_point(bench, index, point, arrivals, progress)
                tracker.point(index, {k: v for k, v in self.rows[-1].items() if isinstance(v, float | int)})
        print_curve(self)

    def _serve_point(
        self, bench: Bench, index: int, point: Point, arrivals: Sequence[Sequence[Arrival]], progress: Progress
    ) -> None:
        import pandas as pd

        from slotlab.record.metrics import aggregate, point_metrics, verdict
        from slotlab.record.tables import frames

        lab, repeats, tables = self.lab, [], []
        for repeat, some in enumerate(arrivals):
            recorder = bench.recorder(index, repeat, some, progress.advance)
            self.recorders.append(recorder)
            bench.serve(point, repeat, some, recorder)
            for remark in recorder.remarks:
                progress.remark(remark)
            requests, steps = frames(recorder)
            weights = {arrival.tenant: arrival.weight for arrival in some}
            caps = {"max_num_seqs": lab.batching.max_num_seqs, "num_blocks": lab.engine.num_blocks}
            repeats.append(point_metrics(requests, steps, **caps, slo=lab.slo, weights=weights))
            tables.append(requests)
        label = {"point": index, "rate": point.rate, "concurrency": point.concurrency}
        row: dict[str, Any] = {name: value for name, value in label.items() if value is not None}
        if point.rate is not None:
            row["verdict"] = verdict(pd.concat(tables))
        self.rows.append({**row, **aggregate(repeats)})
        progress.point(self.rows[-1])

    def scalars(self) -> dict[str, float]:
        """One number each for the whole curve."""
        from slotlab.record.metrics import curve_scalars

        verdicts = [row.get("verdict", "undetermined") for row in self.rows]
        return curve_scalars(self.rows, verdicts, len(self.rows) // 2) if self.rows else {}

    def _keep(self, status: str) -> None:
        """Write the folder."""
        from slotlab.record.charts import draw_curve
        from slotlab.record.tables import write_tables

        folder = self.place.folder
        write_tables(self.recorders, folder)
        write_curve(folder, self.rows)
        if self.rows:
            draw_curve(self.rows, folder / "curve.png", title=self.place.name, time_unit=self.lab.engine.time_unit)
        self.meta |= {"status": status, "ended": stamp(), "scalars": self.scalars()}
        write_json(folder / "meta.json", self.meta)

    def _identity(self) -> dict[str, Any]:
        plain, lab = science(self.cfg), self.lab
        others = {name: value for name, value in plain.items() if name not in ("policy", "predictor")}
        return {
            "run_key": short_hash([plain, dict(self.place.choices), dict(self.place.plugins)]),
            "setting": short_hash(others),  # equal where runs differ in their policies alone
            "choices": dict(self.place.choices),
            "plugins": dict(self.place.plugins),
            "oracle": lab.predictor.oracle,
            "time_unit": lab.engine.time_unit,
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
            "oracle": str(meta["oracle"]).lower(),
            "schema_version": SCHEMA_VERSION,
            "metrics_version": METRICS_VERSION,
            **{f"choice.{group}": name for group, name in place.choices.items()},
            **{f"plugin.{name}": version for name, version in place.plugins.items()},
            **{f"engine.{name}": value for name, value in meta["engine"].items()},
            **meta["facts"],
        }
        params = {**dict(place.choices), **flatten(science(self.cfg))}
        return RunInfo(place.name, params, tags, place.choices["workload"], meta["workload_digest"])


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A load point for MLflow's table view, which groups by the first column and shows the second."""
    first = ("rate", "concurrency", "ttft_mean", "e2e_mean", "output_throughput")
    return {name: row[name] for name in (*first, *row) if name in row}


def short_hash(value: Any) -> str:
    """16 hexadecimal digits that stand for a plain value."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
