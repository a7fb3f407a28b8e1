"""A tracking server that refuses costs no measurement: the run is whole, says why it is not tracked, and names the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

QUICK = ("engine=simulated", "load.rates=[8]", "workload.requests=12")
HOST_CHECK = "Invalid Host header - possible DNS rebinding attack detected"


class Refusing(BaseHTTPRequestHandler):
    """A server that is there, and answers every request of MLflow's client in the same way."""

    status, text = 401, "You are not authenticated."

    def do_GET(self) -> None:
        healthy = self.path == "/health"
        self.send_response(200 if healthy else self.status)
        self.end_headers()
        self.wfile.write(b"OK" if healthy else self.text.encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.mark.parametrize(
    ("status", "text", "remedy"),
    [
        (401, "You are not authenticated.", "MLFLOW_TRACKING_USERNAME"),
        (403, HOST_CHECK, "--allowed-hosts"),
        (403, "no", "its owner"),
    ],
)
def test_a_server_that_refuses_is_one_line_with_its_own_remedy(slotlab, server, monkeypatch, status, text, remedy):
    monkeypatch.setattr(Refusing, "status", status)
    monkeypatch.setattr(Refusing, "text", text)
    said = slotlab(*QUICK, f"tracking.uri={server}", tracking="mlflow")
    assert said.code == 2 and said.err.count("\n") == 1 and remedy in said.err
    assert f"the run is whole in {said.folder}" in said.err
    meta = json.loads((said.folder / "meta.json").read_text())
    assert meta["status"] == "FINISHED" and remedy in meta["untracked"]
    assert (said.folder / "requests.parquet").exists() and json.loads((said.folder / "curve.json").read_text())


def test_the_jobs_of_a_sweep_are_measured_though_the_server_refuses(slotlab, server):
    said = slotlab("-m", "policy=fcfs,lifo", *QUICK, f"tracking.uri={server}", tracking="mlflow")
    assert said.code == 1
    jobs = json.loads((said.folder / "sweep.json").read_text())["jobs"]
    assert [job["status"] for job in jobs] == ["FINISHED", "FINISHED"]
    assert all("MLFLOW_TRACKING_USERNAME" in job["error"] for job in jobs)


def test_an_experiment_that_was_deleted_is_named_with_its_remedy_and_the_run_is_kept(slotlab, tmp_path):
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path}/x.db"
    client = MlflowClient(tracking_uri=uri)
    client.delete_experiment(client.create_experiment("gone"))
    said = slotlab(*QUICK, f"tracking.uri={uri}", "tracking.experiment=gone", tracking="mlflow")
    assert said.code == 2 and said.err.count("\n") == 1 and "mlflow experiments restore" in said.err
    assert json.loads((said.folder / "meta.json").read_text())["status"] == "FINISHED"


def test_an_address_that_can_be_none_ends_the_run_before_it_measures(slotlab):
    said = slotlab(*QUICK, "tracking.uri=./mlruns", tracking="mlflow")
    assert said.code == 2 and "sqlite:///" in said.err
    assert json.loads((said.folder / "meta.json").read_text())["status"] == "FAILED"
    assert not (said.folder / "requests.parquet").exists() or not json.loads((said.folder / "curve.json").read_text())
