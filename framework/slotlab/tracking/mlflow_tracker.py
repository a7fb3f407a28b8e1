"""A run in MLflow, by explicit run ids: no global state, so that several runs in one process do not meet."""

import getpass
import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from slotlab.names import escape, fit
from slotlab.tracking import STATUSES, RunInfo, without_password
from slotlab.tracking.database import is_sqlite, one_process
from slotlab.tracking.store import connect, guard, open_experiment

PARAM_CHARS, TAG_CHARS, NAME_CHARS, DIGEST_CHARS = 6000, 8000, 500, 36  # MLflow 3.17 refuses more
BATCH = 1000  # metrics at a time: MLflow refuses more
TABLE = "curve.json"
COLOR = "mlflow.runColor"
PALETTE = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")


class MlflowTracker:
    """One top-level run per curve (MLflow leaves collapsed children out of its charts); step = index of the load point.

    Raises TrackingError, in every method.
    """

    def __init__(self, uri: str, experiment: str) -> None:
        self.run_id: str | None = None
        self.uri = uri
        self._points: set[str] = set()
        self._cut: set[str] = set()  # keys that had to be, and whose names are written down
        self._client = connect(uri)
        self.experiment_id = open_experiment(self._client, uri, experiment).experiment_id

    def start(self, info: RunInfo) -> None:
        from mlflow.entities import Param, RunTag

        tags = {"mlflow.user": _user(), "mlflow.source.name": "slotlab", "mlflow.source.type": "LOCAL"} | {
            fit(escape(key)): _cut(str(value), TAG_CHARS) for key, value in info.tags.items()
        }
        params = [Param(fit(escape(key)), param_text(value)) for key, value in info.params.items()]
        with guard("start the run", self.uri):
            with one_process(self.uri):
                color = self._color(info.name)
                run = self._client.create_run(self.experiment_id, run_name=info.name, tags={COLOR: color})
            self.run_id = run.info.run_id
            try:
                self._client.log_batch(self.run_id, params=params, tags=[RunTag(*tag) for tag in tags.items()])
                self._name([*info.tags, *info.params])
                self._log_workload(info)
            except BaseException:
                self._client.set_terminated(self.run_id, "FAILED")
                raise

    def point(self, index: int, metrics: Mapping[str, float]) -> None:
        assert isinstance(index, int) and index >= 0, f"point {index!r}: MLflow's step is a whole number"
        self._points.update(metrics)
        with guard(f"log load point {index}", self.uri):
            self._log(metrics, step=index)

    def series(self, index: int, columns: Mapping[str, Mapping[int, float]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        keys = {name: fit(f"series_p{index}/{escape(name)}") for name in columns}
        batch = [Metric(keys[k], v, now, at) for k, points in columns.items() for at, v in points.items() if math.isfinite(v)]
        with guard(f"log the series of load point {index}", self.uri):
            self._name(columns, f"series_p{index}/")
            for first in range(0, len(batch), BATCH):
                self._client.log_batch(self._run(), metrics=batch[first : first + BATCH])

    def finish(
        self,
        status: str,
        scalars: Mapping[str, float],
        curve: Sequence[Mapping[str, Any]] | None,
        artifacts: Path | None,
    ) -> None:
        assert status in STATUSES, f"status {status}: must be one of {', '.join(STATUSES)}"
        assert artifacts is None or artifacts.is_dir(), f"no folder {artifacts}: MLflow would upload nothing"
        stored = False
        try:
            with guard("store the results", self.uri):
                self._log({key: value for key, value in scalars.items() if key not in self._points}, step=0)
                if artifacts is not None:
                    self._client.log_artifacts(self._run(), str(artifacts))
                if curve is not None:
                    self._log_table(curve)
            stored = True
        finally:
            with guard("end the run", self.uri):
                self._client.set_terminated(self._run(), status if stored else "FAILED")

    def remark(self, remarks: Mapping[str, str], name: str) -> None:
        from mlflow.entities import RunTag

        tags = {f"remark.{key}": sentence for key, sentence in remarks.items()}
        with guard("store the remarks", self.uri):
            self._client.log_batch(self._run(), tags=[RunTag(fit(escape(k)), _cut(v, TAG_CHARS)) for k, v in tags.items()])
            self._client.update_run(self._run(), name=name)

    def link(self) -> str | None:
        if is_sqlite(self.uri) or self.run_id is None:
            return None
        return f"{without_password(self.uri)}/#/experiments/{self.experiment_id}/runs/{self.run_id}"

    def _color(self, name: str) -> str:
        """One colour per name: those that MLflow makes up from run ids may be the same for all the lines of a chart."""
        runs = self._client.search_runs([self.experiment_id], max_results=50)
        colors = {run.info.run_name: run.data.tags.get(COLOR) for run in runs}
        return colors.get(name) or PALETTE[len(colors) % len(PALETTE)]

    def _run(self) -> str:
        assert self.run_id is not None, "the run has not been started"
        return self.run_id

    def _log_workload(self, info: RunInfo) -> None:
        """The workload as a dataset: the run table and the run page show whose requests were the same."""
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        source = json.dumps({"tags": {"workload": info.workload_name, "digest": info.workload_digest}})
        name, digest = info.workload_name[:NAME_CHARS], info.workload_digest[:DIGEST_CHARS]
        dataset = Dataset(name=name, digest=digest, source_type="code", source=source)
        used = DatasetInput(dataset, [InputTag("mlflow.data.context", "workload")])
        try:
            self._client.log_inputs(self._run(), datasets=[used])
        except MlflowException:  # a run beside this one may have written the same workload first: now it is there
            self._client.log_inputs(self._run(), datasets=[used])

    def _log(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        defined = {name: float(value) for name, value in metrics.items() if value is not None and math.isfinite(value)}
        batch = [Metric(fit(escape(name)), value, now, step) for name, value in defined.items()]
        self._client.log_batch(self._run(), metrics=batch)
        self._name(defined)

    def _name(self, names: Iterable[str], prefix: str = "") -> None:
        """Write down whole, in a tag, each name whose key had to be cut, by the hash that ends the key."""
        cut = {key: name for name in names if (key := fit(prefix + escape(name))) != prefix + escape(name)}
        for key, name in cut.items():
            if key not in self._cut:
                self._client.set_tag(self._run(), f"name.{key.rpartition(':')[2]}", _cut(name, TAG_CHARS))
        self._cut.update(cut)

    def _log_table(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """As `mlflow.log_table`, which would append to a file of that name in the uploaded folder."""
        self._client.log_text(self._run(), table_json(rows), TABLE)
        self._client.set_tag(self._run(), "mlflow.loggedArtifacts", json.dumps([{"path": TABLE, "type": "table"}]))


def param_text(value: Any) -> str:
    """A parameter as the command line would spell it (`null`, `true`, `[1, 2]`), cut to 6000 characters."""
    return _cut(value if isinstance(value, str) else json.dumps(value, default=str), PARAM_CHARS)


def table_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the JSON that MLflow shows as a table and `mlflow.load_table` reads; what is missing or undefined is null."""
    columns = list(dict.fromkeys(column for row in rows for column in row))

    def defined(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    data = [[defined(row.get(column)) for column in columns] for row in rows]
    return json.dumps({"columns": columns, "data": data}, allow_nan=False, default=float)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
