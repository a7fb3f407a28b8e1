"""`slotlab ui`, and a tracker that talks to its server."""

import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from mlflow import MlflowClient

from slotlab.tracking import RunInfo, Tracking, TrackingError, leash, open_tracker
from slotlab.tracking.server import serve_ui

SERVE = """
import sys
from slotlab import signals
from slotlab.tracking.server import serve_ui
signals.install()
sys.exit(serve_ui('sqlite:///mlflow.db', int(sys.argv[1])))
"""
OWNER = """
import subprocess, sys
leash, server = sys.argv[1:]
held = subprocess.Popen([sys.executable, leash, sys.executable, "-c", server], stdin=subprocess.PIPE, start_new_session=True)
held.wait()
"""
INFO = RunInfo("policy=fcfs", {"policy": "fcfs", "empty": ""}, {"sweep_id": "s"}, "poisson", "ab" * 32)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ui")
    tracker = open_tracker(Tracking(uri="sqlite:///mlflow.db"), "curves", folder)
    tracker.start(INFO)
    tracker.finish("FINISHED", {"max_throughput": 1.0}, None, None)
    return folder / "mlflow.db"


@pytest.fixture(scope="module")
def ui(database: Path, python: Callable[..., "Popen[str]"]) -> "Iterator[tuple[Popen[str], str]]":
    """The command line's process and its server's address."""
    port = free_port()
    process = python(SERVE, str(port), cwd=database.parent)
    yield process, f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


def test_the_ui_serves_links_runs_and_ends_on_sigterm(
    ui: "tuple[Popen[str], str]", database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One server for all of it: to start one takes seconds."""
    process, server = ui
    assert process.stdout is not None
    link = process.stdout.readline()
    assert link.startswith(f"curves: {server}/#/experiments/1/runs?viewStateShareKey=slotlab-curves")

    tracker = open_tracker(Tracking(uri=server + "/"), "curves", database.parent)
    tracker.start(INFO)
    tracker.point(0, {"offered_rate": 0.5})
    tracker.finish("FINISHED", {"max_throughput": 2.0}, [{"rate": 0.5}], None)
    assert tracker.link() == f"{server}/#/experiments/1/runs/{tracker.run_id}"
    run = MlflowClient(f"sqlite:///{database}").get_run(str(tracker.run_id))
    assert run.info.status == "FINISHED" and run.data.metrics == {"offered_rate": 0.5, "max_throughput": 2.0}

    assert serve_ui(server, open_at="curves") == 0  # a server's URI: only the links
    assert capsys.readouterr().out == link
    with pytest.raises(TrackingError, match=r"no experiment curve with curves at .*: did you mean curves"):
        serve_ui(server, open_at="curve")

    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    with pytest.raises(TrackingError, match="no MLflow server answers"):
        open_tracker(Tracking(uri=server), "curves", database.parent)


def test_the_server_ends_with_the_command_however_that_ends(python: Callable[..., "Popen[str]"], tmp_path: Path) -> None:
    """SIGKILL leaves nobody time to say goodbye: the system closes the pipe. A stand-in for the server writes its own end."""
    server = "import signal, sys; signal.signal(15, lambda *_: sys.exit('ended')); print('up', flush=True); signal.pause()"
    owner = python(OWNER, leash.__file__, server, cwd=tmp_path)
    assert owner.stdout is not None and owner.stdout.readline() == "up\n"
    owner.kill()
    out, err = owner.communicate()  # returns when the last holder of these pipes is gone: the server
    assert (out, err) == ("", "ended\n")


def test_a_leash_ends_with_the_code_of_its_command(tmp_path: Path) -> None:
    held = Popen([sys.executable, leash.__file__, sys.executable, "-c", "raise SystemExit(7)"], stdin=PIPE)
    assert held.wait() == 7


def test_a_missing_database_is_one_line_and_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match=r"^no database at sqlite:.*x\.db: run something first"):
        serve_ui(f"sqlite:///{tmp_path}/x.db", free_port())
    assert not list(tmp_path.iterdir())


def test_a_taken_port_is_one_line(database: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(TrackingError, match=rf"^port={port}: cannot be used .*; choose a free one$"):
            serve_ui(f"sqlite:///{database}", port)
