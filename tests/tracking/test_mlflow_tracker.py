"""Runs in a real database file."""

import json
import logging
import math
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import Popen
from types import MappingProxyType
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.exceptions import MlflowException

from slotlab.names import unescape
from slotlab.tracking import RunInfo, Tracker, Tracking, TrackingError, open_tracker
from slotlab.tracking.mlflow_tracker import param_text, table_json
from slotlab.tracking.view import TAG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for the module: to create its schema takes a second."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def tracker(folder: Path) -> Tracker:
    return open_tracker(Tracking(), "curves", folder)


@pytest.fixture
def client(tracker: Tracker, folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder}/mlflow.db")


def info(name: str = "policy=fcfs", params: Mapping[str, object] = MappingProxyType({})) -> RunInfo:
    return RunInfo(name, params, {"sweep_id": "s", "note": "x" * 9000}, "poisson", "0123456789abcdef" * 4)


def run_id(tracker: Tracker) -> str:
    assert tracker.run_id is not None
    return tracker.run_id


def finished(tracker: Tracker, status: str = "FINISHED") -> str:
    tracker.finish(status, {}, None, None)
    return run_id(tracker)


def experiment_of(client: MlflowClient, name: str) -> Experiment:
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    return experiment


def test_points_become_metrics_whose_step_is_the_index(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    for index, rate in enumerate([0.5, 2.0]):
        tracker.point(index, {"offered_rate": rate, "ttft_mean": rate / 10})
    history = client.get_metric_history(finished(tracker), "offered_rate")
    assert [(point.step, point.value) for point in history] == [(0, 0.5), (1, 2.0)]


def test_a_series_of_any_length_is_logged_by_the_second(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    long = {second: second / 2 for second in range(1500)}
    tracker.series(3, {"queue_depth": long, "service_a/b": {7: 1.0, 8: math.nan}})
    run = finished(tracker)
    history = client.get_metric_history(run, "series_p3/queue_depth")
    assert {point.step: point.value for point in history} == long
    assert [point.step for point in client.get_metric_history(run, "series_p3/service_a:2Fb")] == [7]


def test_undefined_metrics_are_not_logged(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    tracker.point(0, {"a": math.nan, "b": math.inf, "c": None, "d": 1.0})  # type: ignore[dict-item]
    assert client.get_run(finished(tracker)).data.metrics == {"d": 1.0}


def test_the_step_must_be_a_whole_number(tracker: Tracker) -> None:
    tracker.start(info())
    with pytest.raises(AssertionError, match="whole number"):
        tracker.point(0.5, {"a": 1.0})  # type: ignore[arg-type]
    finished(tracker, "FAILED")


def test_scalars_join_the_metrics_but_a_name_of_the_points_stays_theirs(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    tracker.point(0, {"makespan": 3.0})
    tracker.finish("FINISHED", {"makespan": 9.0, "max_throughput": 7.0}, None, None)
    assert client.get_run(run_id(tracker)).data.metrics == {"makespan": 3.0, "max_throughput": 7.0}


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_a_run_ends_in_the_state_it_is_given(status: str, tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    run = client.get_run(run_id(tracker))
    assert run.info.status == "RUNNING" and "mlflow.parentRunId" not in run.data.tags
    assert client.get_run(finished(tracker, status)).info.status == status


def refuse(*args: object, **kwargs: object) -> None:
    raise OSError("disk full\nand more")


def test_a_run_ends_even_if_its_results_cannot_be_stored(
    tracker: Tracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.start(info())
    monkeypatch.setattr(MlflowClient, "log_text", refuse)
    with pytest.raises(TrackingError, match="could not store the results: disk full"):
        tracker.finish("FINISHED", {}, [{"rate": 1}], None)
    assert client.get_run(run_id(tracker)).info.status == "FAILED"  # of what is not there nothing says that it is


def test_a_missing_folder_of_artifacts_is_not_passed_over(tracker: Tracker, tmp_path: Path) -> None:
    tracker.start(info())
    with pytest.raises(AssertionError, match="no folder"):
        tracker.finish("FINISHED", {}, None, tmp_path / "missing")
    finished(tracker, "FAILED")


def test_a_run_that_cannot_be_described_is_ended_as_failed(
    tracker: Tracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MlflowClient, "log_inputs", refuse)
    with pytest.raises(TrackingError, match=r"^MLflow at sqlite:.* could not start the run: disk full \(.*\)$"):
        tracker.start(info())
    assert client.get_run(run_id(tracker)).info.status == "FAILED"


def test_parameters_and_tags_are_cut_and_their_keys_cleaned(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info(params={"a[0]=b": "y" * 10_000, "slo.ttft": None, "rates": [1, 2.5], "chunked": True, "empty": ""}))
    data = client.get_run(finished(tracker)).data
    assert data.params["a:5B0:5D:3Db"] == "y" * 5997 + "..."
    assert (data.params["slo.ttft"], data.params["rates"], data.params["chunked"]) == ("null", "[1, 2.5]", "true")
    assert data.params["empty"] == "" and len(data.tags["note"]) == 8000 and data.tags["sweep_id"] == "s"


def test_a_parameter_of_ten_thousand_characters_in_its_key_is_logged(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info(params={"k" * 10_000: 1}))
    data = client.get_run(finished(tracker)).data
    (key,) = data.params
    assert key.startswith("k" * 200) and len(key) == 250 and data.tags[f"name.{key[-16:]}"] == "k" * 7997 + "..."


def test_the_workload_is_a_dataset_with_a_digest_of_36_characters(tracker: Tracker, client: MlflowClient) -> None:
    tracker.start(info())
    inputs = client.get_run(finished(tracker)).inputs
    assert inputs is not None
    (used,) = inputs.dataset_inputs
    assert used.dataset.name == "poisson" and used.dataset.digest == ("0123456789abcdef" * 4)[:36]
    assert {tag.key: tag.value for tag in used.tags} == {"mlflow.data.context": "workload"}


def test_a_workload_that_another_process_writes_at_the_same_moment_is_no_error(
    tracker: Tracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_inputs, calls = MlflowClient.log_inputs, [1, 2]

    def second(*args: Any, **kwargs: Any) -> None:
        if calls.pop() == 2:
            raise MlflowException("UNIQUE constraint failed: datasets.experiment_id")
        log_inputs(*args, **kwargs)

    monkeypatch.setattr(MlflowClient, "log_inputs", second)
    tracker.start(info())
    inputs = client.get_run(finished(tracker)).inputs
    assert inputs is not None and len(inputs.dataset_inputs) == 1


def test_the_curve_is_a_table_beside_the_uploaded_folder(tracker: Tracker, client: MlflowClient, tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text("[]")  # the run folder's own: the table replaces it
    (tmp_path / "config.yaml").write_text("policy: fcfs")
    tracker.start(info())
    tracker.finish("FINISHED", {}, [{"rate": 1.0, "ttft": math.nan}, {"rate": 2.0, "note": "x"}], tmp_path)
    assert {file.path for file in client.list_artifacts(run_id(tracker))} == {"curve.json", "config.yaml"}
    tags = client.get_run(run_id(tracker)).data.tags
    assert json.loads(tags["mlflow.loggedArtifacts"]) == [{"path": "curve.json", "type": "table"}]


def test_mlflow_loads_the_table(tracker: Tracker, client: MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker.start(info())
    tracker.finish("FINISHED", {}, [{"rate": 1.0, "ttft": 0.25}, {"rate": 2.0}], None)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", str(tracker.experiment_id))
    mlflow.set_tracking_uri(client.tracking_uri)
    try:
        table = mlflow.load_table("curve.json", run_ids=[run_id(tracker)])
    finally:
        mlflow.set_tracking_uri("")
    assert list(table["rate"]) == [1.0, 2.0] and table["ttft"].isna().sum() == 1


def test_runs_of_one_name_share_a_colour_and_others_do_not(folder: Path) -> None:
    colours: dict[str, str] = {}
    for name in ("policy=fcfs", "policy=sjf", "policy=fcfs"):
        tracker = open_tracker(Tracking(experiment="colours"), "e", folder)
        tracker.start(info(name))
        run = MlflowClient(f"sqlite:///{folder}/mlflow.db").get_run(finished(tracker))
        assert colours.setdefault(name, run.data.tags["mlflow.runColor"]) == run.data.tags["mlflow.runColor"]
    assert len(set(colours.values())) == 2


def test_the_experiment_has_a_description_and_an_absolute_place(folder: Path, client: MlflowClient) -> None:
    experiment = experiment_of(client, "curves")
    assert experiment.artifact_location == (folder / "mlruns").as_uri()
    assert "One run is one curve" in experiment.tags["mlflow.note.content"]


def test_a_deleted_experiment_is_one_line_with_the_way_back(folder: Path, client: MlflowClient) -> None:
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(TrackingError, match=r"experiment gone at .* is deleted: .*mlflow experiments restore"):
        open_tracker(Tracking(experiment="gone"), "e", folder)


def test_a_view_that_cannot_be_written_costs_one_warning(
    folder: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    with caplog.at_level(logging.WARNING, "slotlab"):
        open_tracker(Tracking(experiment="plain"), "e", folder)
    assert caplog.messages == ["the saved view of experiment plain could not be written: disk full"]


def test_a_database_of_another_version_is_one_line_with_the_upgrade_command(
    folder: Path, tracker: Tracker, tmp_path: Path
) -> None:
    path = tmp_path / "mlflow.db"
    with sqlite3.connect(folder / "mlflow.db") as source, sqlite3.connect(path) as copy:
        source.backup(copy)
        copy.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
    with pytest.raises(TrackingError, match=f"mlflow db upgrade sqlite:///{path}") as error:
        open_tracker(Tracking(), "e", tmp_path)
    assert "\n" not in str(error.value)


RACE = """
import sys
from pathlib import Path
from slotlab.tracking import RunInfo, Tracking, open_tracker
tracker = open_tracker(Tracking(), "race", Path.cwd())
tracker.start(RunInfo(sys.argv[1], {"policy": sys.argv[1]}, {}, "poisson", "ab" * 32))
tracker.point(0, {"output_throughput": 1.0})
tracker.finish("FINISHED", {}, [{"rate": 1}], None)
"""


def test_four_processes_at_once_on_a_fresh_database_all_succeed_in_silence(
    python: Callable[..., Popen[str]], tmp_path: Path
) -> None:
    programs = [python(RACE, f"policy={name}", cwd=tmp_path) for name in "abcd"]
    assert [(program.communicate(), program.returncode) for program in programs] == [(("", ""), 0)] * 4
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = experiment_of(client, "race")
    runs = client.search_runs([experiment.experiment_id])
    assert TAG in experiment.tags and [run.info.status for run in runs] == ["FINISHED"] * 4
    assert len({run.data.tags["mlflow.runColor"] for run in runs}) == 4


def test_a_first_run_that_is_interrupted_leaves_no_half_made_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables made later runs fail: `table datasets already exists`."""

    class Interrupt(BaseException):
        pass

    def interrupt(*args: object) -> None:
        raise Interrupt

    with monkeypatch.context() as patch, pytest.raises(Interrupt):
        patch.setattr("mlflow.store.db.utils._upgrade_db", interrupt)  # the first tables are there, and half a migration
        open_tracker(Tracking(), "e", tmp_path)
    assert not (tmp_path / "mlflow.db").exists()
    (tmp_path / "mlflow.db-journal").write_bytes(b"of a file that is gone")
    assert open_tracker(Tracking(), "e", tmp_path).experiment_id
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def test_a_database_that_was_left_half_made_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as half:
        half.execute("CREATE TABLE datasets (dataset_uuid TEXT)")
    with pytest.raises(TrackingError, match=r"db was left half made .*datasets already exists.*: delete it, and run again$"):
        open_tracker(Tracking(), "e", tmp_path)


def test_what_can_be_no_database_is_refused_and_no_lock_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a database " * 100)
    before = {*tmp_path.iterdir()}
    for name, why in (("folder", "is not a file"), ("text", "file is not a database"), ("text/x.db", "File exists")):
        with pytest.raises(TrackingError, match=why):
            open_tracker(Tracking(uri=f"sqlite:///{name}"), "e", tmp_path)
    assert {*tmp_path.iterdir()} == before


def test_names_that_were_one_key_are_logged_each_by_itself(tracker: Tracker, client: MlflowClient) -> None:
    """`a@b` and `a#b` of an option lost the run, of a tenant they were one metric."""
    names = ["a@b (ms)", "a#b %ms)", "", "..", "a/../b", "A", "a", "😀\n", "x" * 300, "x" * 301]
    tracker.start(info(params={f"weights.{name}": name for name in names}))
    tracker.point(0, {f"tenant_{name}": float(i) for i, name in enumerate(names)})
    tracker.series(0, {f"service_{name}": {0: float(i)} for i, name in enumerate(names)})
    data = client.get_run(finished(tracker)).data
    whole = {key.removeprefix("name."): name for key, name in data.tags.items() if key.startswith("name.")}

    def read(key: str) -> str:
        return whole.get(key.rpartition("::")[2]) or unescape(key)

    metrics = {read(key): value for key, value in data.metrics.items() if not key.startswith("series")}
    series = {read(key.removeprefix("series_p0/")): value for key, value in data.metrics.items() if key.startswith("series")}
    assert metrics == {f"tenant_{name}": i for i, name in enumerate(names)}
    assert series == {f"service_{name}": i for i, name in enumerate(names)}
    assert {read(key): value for key, value in data.params.items()} == {f"weights.{name}": name for name in names}


def test_a_text_parameter_stays_as_it_is() -> None:
    assert param_text("sjf") == "sjf" and param_text(Path("/x")) == '"/x"'


def test_an_empty_curve_is_an_empty_table() -> None:
    assert json.loads(table_json([])) == {"columns": [], "data": []}
