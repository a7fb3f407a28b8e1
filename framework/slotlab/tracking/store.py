"""Opening MLflow's store: safely when several processes do it at once, quickly when a server is down, quietly always."""

import logging
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

from slotlab.tracking import TrackingError, without_password
from slotlab.tracking.database import database, is_half_made, is_sqlite, make, one_process
from slotlab.tracking.view import view_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

log = logging.getLogger(__name__)

ENVIRONMENT = {  # defaults: the user's own settings win
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # MLflow's own 7 retries of 120 s cost minutes per call
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
}
PROBE_SECONDS = 2.0
HALF_MADE = "{path} was left half made by an interrupted first run ({cause}), and no run is in it: delete it, and run again"
REMEDIES = {  # by what an error says
    "out-of-date database schema": "another version of MLflow wrote it; copy the file, then run: mlflow db upgrade {uri}",
    "Invalid Host header": "the server answers to other names only: start it with --allowed-hosts and the name in tracking.uri",
    "error code 401": "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    "error code 403": "the server knows you and lets you not: ask its owner for the right to edit, or choose tracking.experiment",
}
DESCRIPTION = (
    "Throughput-latency curves by slotlab. One run is one curve: the step of a metric is the index of the load point, "
    "latencies are in seconds. The view *slotlab curves* draws the latencies over `output_throughput` (tokens/s)."
)


def connect(uri: str) -> "MlflowClient":
    """A client of the store at an absolute `uri`; creates the schema of a fresh database. Raises TrackingError."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not is_sqlite(uri):
        _probe(uri)
    from mlflow import MlflowClient

    for noisy in ("mlflow", "alembic"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    with guard("open the store", uri), one_process(uri):
        if is_sqlite(uri):
            make(database(uri))
        try:
            client = MlflowClient(tracking_uri=uri)
            client.search_experiments(max_results=1)
        except Exception as error:  # whatever sqlalchemy or alembic says of tables that are half there
            if is_sqlite(uri) and is_half_made(database(uri)):
                raise TrackingError(HALF_MADE.format(path=database(uri), cause=first_line(error))) from error
            raise
    return client


def open_experiment(client: "MlflowClient", uri: str, name: str) -> "Experiment":
    """The experiment of that name, created if need be, with its description and its view. Raises TrackingError."""
    with guard(f"open the experiment {name}", uri), one_process(uri):
        experiment = client.get_experiment_by_name(name) or _create(client, uri, name)
        if experiment.lifecycle_stage != "active":
            raise TrackingError(
                f"experiment {name} at {without_password(uri)} is deleted: choose another by tracking.experiment=NAME, "
                f"or restore it: mlflow experiments restore --experiment-id {experiment.experiment_id}"
            )
        try:
            for key, value in view_tags(experiment.tags).items():
                client.set_experiment_tag(experiment.experiment_id, key, value)
        except Exception as error:  # a picture less is no reason to lose a run, whatever MLflow raises
            log.warning("the saved view of experiment %s could not be written: %s", name, first_line(error))
    return experiment


def first_line(error: BaseException) -> str:
    """The error in a line; of a lost connection only its cause, which requests wraps in several layers."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    lost = re.search(r"Caused by (\w+)", line)
    return f"the server does not answer ({lost[1]})" if lost else line[:300]


@contextmanager
def guard(task: str, uri: str) -> Iterator[None]:
    """Turn whatever MLflow and the libraries below it raise into one line."""
    try:
        yield
    except TrackingError:
        raise
    except Exception as error:  # MLflow lets sqlalchemy, alembic, requests and OS errors through
        advice = next((cure for sign, cure in REMEDIES.items() if sign in str(error)), "tracking.kind=none works without MLflow")
        raise TrackingError(
            f"MLflow at {without_password(uri)} could not {task}: {first_line(error)} ({advice.format(uri=uri)})"
        ) from error


def _create(client: "MlflowClient", uri: str, name: str) -> "Experiment":
    from mlflow.exceptions import MlflowException

    # Absolute, or MLflow would put artifacts below whatever folder a process happens to be in.
    location = (database(uri).parent / "mlruns").as_uri() if is_sqlite(uri) else None
    try:
        client.create_experiment(name, artifact_location=location, tags={"mlflow.note.content": DESCRIPTION})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":  # on a server another process may have been faster
            raise
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None, f"experiment {name} is gone right after its creation"
    return experiment


def _probe(uri: str) -> None:
    """One quick request: MLflow's own first call to a server that is down takes minutes to fail."""
    parts = urlsplit(uri)
    address = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path + "/health", "", ""))
    try:
        urlopen(address, timeout=PROBE_SECONDS).close()
        return
    except HTTPError as error:
        if error.code < 500:  # somebody answers; whether we are welcome, the first real request says
            return
        reason: object = error
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):  # MLflow has its own settings for certificates
            return
        reason = error.reason
    except (OSError, ValueError, HTTPException) as error:
        reason = error
    raise TrackingError(
        f"no MLflow server answers at {without_password(uri)} ({reason}): "
        "start it, set tracking.uri, or choose tracking.kind=none"
    )
