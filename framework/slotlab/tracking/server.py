"""`slotlab ui`: MLflow's pages on this machine, and the links to the curves."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from slotlab import signals
from slotlab.errors import nearest
from slotlab.tracking import TrackingError, leash, resolve_uri, without_password
from slotlab.tracking.database import database, is_sqlite
from slotlab.tracking.store import connect, guard
from slotlab.tracking.view import TAG, curves_link

if TYPE_CHECKING:
    from mlflow import MlflowClient

HOST = "127.0.0.1"
START_SECONDS, STOP_SECONDS = 60.0, leash.STOP_SECONDS
ENVIRONMENT = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # two processes instead of ten
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def serve_ui(tracking_uri: str, port: int = 5000, open_at: str | None = None) -> int:
    """Show the runs at `tracking_uri` until Ctrl-C or SIGTERM; for a server's URI only print the links.

    open_at: the experiment whose link to print; default: all that have curves, the last used first.
    Returns 0. Raises TrackingError: no database, port taken, no such experiment, the server does not stay up.
    """
    uri = resolve_uri(tracking_uri, Path.cwd())
    if not is_sqlite(uri):
        _print_links(without_password(uri), connect(uri), uri, open_at)
        return 0
    if not database(uri).exists():
        raise TrackingError(f"no database at {uri}: run something first, or set tracking.uri")
    _refuse_taken(port)
    client = connect(uri)
    with signals.in_good_order(), suppress(signals.Stopped), _serving(uri, port) as (child, server):
        _print_links(server, client, uri, open_at)
        print("Ctrl-C to stop", flush=True)
        while child.poll() is None:
            signals.check()
            time.sleep(0.1)
        raise TrackingError(f"the MLflow server at {server} stopped by itself, with code {child.returncode}")
    return 0


def _print_links(server: str, client: "MlflowClient", uri: str, only: str | None) -> None:
    with guard("list the experiments", uri):
        found = {e.experiment_id: e.name for e in client.search_experiments() if TAG in e.tags}
        runs = client.search_runs(list(found), order_by=["attributes.start_time DESC"]) if found else []
    if only is not None and only not in found.values():
        raise TrackingError(f"no experiment {only} with curves at {without_password(uri)}: {nearest(only, found.values())}")
    last_used_first = dict.fromkeys([run.info.experiment_id for run in runs] + list(found))
    names = {key: found[key] for key in last_used_first if only in (None, found[key])}
    if not names:
        print(f"no experiment with curves at {without_password(uri)} yet; {server}")
    for key, name in names.items():
        print(f"{name}: {curves_link(server, key)}", flush=True)


def _refuse_taken(port: int) -> None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except (OSError, OverflowError) as error:
        raise TrackingError(f"port={port}: cannot be used ({error}); choose a free one") from error


@contextmanager
def _serving(uri: str, port: int) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """MLflow's server in a session of its own, so that Ctrl-C reaches it through us only; on a leash, so that it ends with us."""
    command = [sys.executable, leash.__file__, sys.executable, "-m", "mlflow", "server"]
    command += ["--host", HOST, "--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            env=os.environ | ENVIRONMENT,
            cwd=database(uri).parent,
            stdin=subprocess.PIPE,  # never written to: its end tells the leash of ours
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            server = f"http://{HOST}:{port}"
            if not _healthy(child, server):
                output.seek(0)
                lines = output.read().decode(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "no output")
                raise TrackingError(f"the MLflow server for {uri} did not come up at port {port}: {last}")
            yield child, server
        finally:
            _stop(child)


def _healthy(child: subprocess.Popen[bytes], server: str) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        signals.check()
        with suppress(OSError):
            urlopen(f"{server}/health", timeout=1).close()
            return True
        time.sleep(0.1)
    return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End the server and its workers: politely, then not."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, how)
        with suppress(subprocess.TimeoutExpired):
            child.wait(STOP_SECONDS)
