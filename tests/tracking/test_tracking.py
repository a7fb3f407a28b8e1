"""What needs no MLflow: choosing, resolving, refusing."""

import socket
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest

from slotlab.tracking import RunInfo, Tracking, TrackingError, open_tracker, resolve_uri
from slotlab.tracking.store import PROBE_SECONDS

INFO = RunInfo("policy=fcfs", {}, {}, "poisson", "0" * 64)


def test_an_unknown_kind_is_one_line_with_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match=r"^kind=wandb: must be mlflow or none$"):
        Tracking(kind="wandb")


def test_importing_the_tracking_package_does_not_import_mlflow(python: Callable[..., Popen[str]], tmp_path: Path) -> None:
    program = python("import sys, slotlab.tracking; print('mlflow' in sys.modules)", cwd=tmp_path)
    assert program.communicate()[0] == "False\n"


def test_kind_none_does_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    tracker = open_tracker(Tracking(kind="none"), "e", tmp_path)
    tracker.start(INFO)
    tracker.point(0, {"ttft_mean": 1.0})
    tracker.finish("FAILED", {}, None, tmp_path)
    assert tracker.run_id is None and tracker.link() is None and not list(tmp_path.iterdir())


def test_the_default_uri_is_a_file_where_the_command_was_typed(tmp_path: Path) -> None:
    assert resolve_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"


def test_the_environment_gives_the_uri_and_the_option_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://lab:5000/")
    assert resolve_uri(None, tmp_path) == "http://lab:5000"
    assert resolve_uri("sqlite:////data/x.db", tmp_path) == "sqlite:////data/x.db"


def test_relative_files_become_absolute(tmp_path: Path) -> None:
    assert resolve_uri("sqlite:///sub/../x.db", tmp_path) == f"sqlite:///{tmp_path}/x.db"


@pytest.mark.parametrize("uri", ["./mlruns", "file:///tmp/mlruns", "/tmp/x.db", "sqlite://", "sqlite:///:memory:", "http://"])
def test_other_uris_are_refused_with_one_line_that_names_sqlite(uri: str, tmp_path: Path) -> None:
    with pytest.raises(TrackingError) as error:
        resolve_uri(uri, tmp_path)
    message = str(error.value)
    assert message.startswith(f"tracking.uri={uri}: ") and "sqlite:///" in message and "\n" not in message


def test_a_path_that_mlflow_would_read_differently_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"/what\?/mlflow.db: MLflow misreads"):
        resolve_uri(None, tmp_path / "what?")


def refused() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://user:secret@127.0.0.1:{free.getsockname()[1]}"


def test_a_server_that_is_down_is_one_line_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"^no MLflow server answers at http://127.0.0.1:\d+ .*tracking.kind=none$"):
        open_tracker(Tracking(uri=refused()), "e", tmp_path)


def test_a_server_that_accepts_and_never_answers_is_reported_after_one_probe(tmp_path: Path) -> None:
    assert PROBE_SECONDS < 5  # MLflow's own first error comes after four minutes
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(TrackingError, match="no MLflow server answers"):
            open_tracker(Tracking(uri=f"http://127.0.0.1:{mute.getsockname()[1]}"), "e", tmp_path)
