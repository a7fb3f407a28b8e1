"""One run = one curve: compose, open, serve every load point and repeat, record, track."""

from __future__ import annotations

import json
import signal
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import DictConfig, OmegaConf

from slotlab.errors import UserError, blame
from slotlab.lab.bench import Bench
from slotlab.lab.config import build, flatten, science
from slotlab.lab.facts import facts, peak_mib
from slotlab.lab.folder import make_folder, stamp, write_curve, write_json
from slotlab.lab.progress import Progress, console
from slotlab.lab.report import print_cost, print_curve, print_facts
from slotlab.record.recorder import Recorder
from slotlab.tracking import RunInfo, Tracker, TrackingError, open_tracker
from slotlab.workload import Arrival, Point, digest


class Terminated(BaseException):
    """SIGTERM arrived."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not lose what the first one wants kept."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    ref_index: int = 0  # of the point that stands for the curve
    began: float = field(default_factory=perf_counter)

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
            if not isinstance(error, UserError | TrackingError):
                (folder / "error.txt").write_text("".join(traceback.format_exception(error)))
            raise
        finally:
            with undisturbed():
                self._end(tracker, status)

    def _end(self, tracker: Tracker | None, status: str) -> None:
        """Keep what there is; the tracker learns of the end even if the folder is gone."""
        try:
            self.lab.engine.close()
            self._keep(status)
            if self.rows:
                print_cost(self)
        finally:
            if tracker and tracker.run_id:
                tracker.finish(status, self.scalars(), [table_row(row) for row in self.rows], self.place.folder)
                if link := tracker.link():
                    console.print(f"mlflow: {link}")

    def _measure(self, tracker: Tracker) -> None:
        from slotlab.record.arrivals import arrivals_table
        from slotlab.record.schema import write_table
        from slotlab.record.series import by_name

        lab, place = self.lab, self.place
        lab.engine.caps(lab.batching.max_num_seqs, lab.batching.max_num_batched_tokens)
        self.meta["engine"] = dict(lab.engine.open(lab.model))
        bench = Bench(self.cfg, lab, place.sweep, place.choices["predictor"])
        arrivals = [bench.arrivals(repeat) for repeat in range(lab.load.draws)]
        write_table(arrivals_table(arrivals), place.folder / "arrivals.parquet")
        self.meta |= {"workload": dict(lab.workload.facts()), "workload_digest": digest(arrivals)}
        if len(arrivals) > 1 and arrivals[0] == arrivals[1]:
            self.meta["workload"]["repeats"] = "the same requests each time: their spread is the engine's noise alone"
        self.meta["weights"] = {arrival.tenant: arrival.weight for some in arrivals for arrival in some}
        with blame(lab.load):
            points = lab.load.points(bench)
        if not points:
            raise UserError(f"load={place.choices['load']}: it has no points")
        self.ref_index = self.meta["ref_point"] = lab.load.ref_index(points)
        print_facts(self)
        tracker.start(self._info())
        self.meta["mlflow_run"] = tracker.run_id
        total = len(points) * sum(map(len, arrivals[: lab.load.repeats]))
        untracked = None
        with Progress(place.name, total) as progress:
            for index, point in enumerate(points):
                self._serve_point(bench, index, point, arrivals, progress)
                try:
                    tracker.point(index, {k: v for k, v in self.rows[-1].items() if isinstance(v, float | int)})
                    tracker.series(index, by_name(self.series[-self.rows[-1]["repeats"]]))  # of the first repeat
                except TrackingError as error:  # the measurement goes on without it
                    untracked = untracked or error
        print_curve(self)
        if untracked:
            raise untracked

    def _serve_point(
        self, bench: Bench, index: int, point: Point, arrivals: Sequence[Sequence[Arrival]], progress: Progress
    ) -> None:
        import pandas as pd

        from slotlab.lab.figures import repeat_figures
        from slotlab.record.metrics import aggregate, verdict
        from slotlab.record.series import series_table
        from slotlab.record.tables import frames

        figures, tables, early = [], [], False
        with bench.repeats(index) as enough:
            for repeat, some in enumerate(arrivals):
                recorder = bench.recorder(index, repeat, some, progress.advance)
                self.recorders.append(recorder)
                bench.serve(point, repeat, some, recorder)
                for remark in recorder.remarks:
                    progress.remark(remark)
                requests, steps = frames(recorder)
                figures.append(repeat_figures(bench, point, repeat, some, requests, steps))
                tables.append(requests)
                self.series.append(series_table(index, repeat, requests, steps))
                early = early or recorder.ended_early
                if enough(figures):
                    break
        if note := self.lab.load.remark(figures):
            progress.remark(f"point {index}: {note}")
        label = {"point": index, "rate": point.rate, "concurrency": point.concurrency, "ended_early": early or None}
        row: dict[str, Any] = {name: value for name, value in label.items() if value is not None}
        if point.rate is not None:
            row["verdict"] = verdict(pd.concat(tables))
        self.rows.append({**row, "repeats": len(figures), **aggregate(figures)})
        progress.point(self.rows[-1])

    def scalars(self) -> dict[str, float]:
        """One number each for the whole curve."""
        from slotlab.record.metrics import curve_scalars

        verdicts = [row.get("verdict", "undetermined") for row in self.rows]
        return curve_scalars(self.rows, verdicts, min(self.ref_index, len(self.rows) - 1)) if self.rows else {}

    def _keep(self, status: str) -> None:
        """Write the folder."""
        from slotlab.record.charts import draw_curve
        from slotlab.record.tables import write_series, write_tables

        folder = self.place.folder
        write_tables(self.recorders, folder)
        write_series(self.series, folder)
        write_curve(folder, self.rows)
        if self.rows:
            draw_curve(self.rows, folder / "curve.png", title=self.place.name, time_unit=self.lab.engine.time_unit)
        self.meta |= {"status": status, "ended": stamp(), "scalars": self.scalars()}
        self.meta |= {"wall_s": round(perf_counter() - self.began, 3), "peak_mib": peak_mib()}
        write_json(folder / "meta.json", self.meta)

    def _identity(self) -> dict[str, Any]:
        plain, lab = science(self.cfg), self.lab
        others = {name: value for name, value in plain.items() if name not in ("policy", "modifier", "predictor")}
        return {
            "run_key": short_hash([plain, dict(self.place.choices), dict(self.place.plugins)]),
            "setting": short_hash(others),  # equal where runs differ in their policies alone
            "choices": dict(self.place.choices),
            "plugins": dict(self.place.plugins),
            "oracle": lab.predictor.oracle,
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
            **meta["facts"],
        }
        params = {**flatten(science(self.cfg)), **place.choices}  # a choice without options is its name, not `{}`
        return RunInfo(place.name, params, tags, place.choices["workload"], meta["workload_digest"])


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A load point for MLflow's table view, which groups by the first column and shows the second."""
    first = ("rate", "concurrency", "ttft_mean", "e2e_mean", "output_throughput")
    return {name: row[name] for name in (*first, *row) if name in row}


def short_hash(value: Any) -> str:
    """16 hexadecimal digits that stand for a plain value."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
