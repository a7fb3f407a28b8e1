"""Where a run leaves its trace: MLflow, or nowhere.

Nothing here imports mlflow (it takes a second or more): that happens when a tracker of kind `mlflow` is opened.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from slotlab.errors import require

KINDS = ("mlflow", "none")
LOGIN = re.compile(r"(?<=://)([^/?#\s]*)@")  # to the last @ of the server's name
STATUSES = ("FINISHED", "FAILED", "KILLED")


class TrackingError(Exception):
    """What went wrong, at which URI, and what to do, in one line. The run folder is complete without MLflow: keep it."""


@dataclass
class Tracking:
    """The node `tracking` of the configuration.

    kind: `mlflow`, or `none` for no tracking.
    uri: `sqlite:///file` or `http(s)://server`; default: $MLFLOW_TRACKING_URI, else mlflow.db where the command was typed.
    experiment: default: $MLFLOW_EXPERIMENT_NAME, else the name of the chosen experiment.
    """

    kind: str = "mlflow"
    uri: str | None = None
    experiment: str | None = None

    def __post_init__(self) -> None:
        require(self.kind in KINDS, "kind", self.kind, " or ".join(KINDS))


@dataclass(frozen=True)
class RunInfo:
    """What is known about a run before its first load point: one run is one curve.

    params: the flattened scientific configuration. tags: sweep id, choices, versions, hardware, ...
    workload_digest: identity of the requests at unit rate; runs with equal digests served the same requests.
    """

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    workload_name: str
    workload_digest: str


class Tracker(Protocol):
    """One run's trace. Every method may raise TrackingError."""

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run, once it is started."""

    @property
    def uri(self) -> str | None:
        """Where the run is kept, absolute."""

    @property
    def experiment_id(self) -> str | None:
        """MLflow's id of the experiment, for `view.curves_link`."""

    def start(self, info: RunInfo) -> None:
        """Open the run: status RUNNING until `finish`."""

    def point(self, index: int, metrics: Mapping[str, float]) -> None:
        """Log load point `index` (0, 1, ...) in one batch, when it is complete. None, NaN and infinity are left out."""

    def series(self, index: int, columns: Mapping[str, Mapping[int, float]]) -> None:
        """Log time series of load point `index` under `series_p<index>/`: by name, the value at each whole second."""

    def finish(
        self,
        status: str,
        scalars: Mapping[str, float],
        curve: Sequence[Mapping[str, Any]] | None,
        artifacts: Path | None,
    ) -> None:
        """Close the run, whatever its outcome: `status` is FINISHED, FAILED or KILLED.

        scalars: one number for the whole curve each; a name that the points have logged stays theirs.
        curve: one row per load point, for the table `curve.json`. artifacts: a folder to upload, before the table.
        """

    def remark(self, remarks: Mapping[str, str], name: str) -> None:
        """Tag the run, also one that has ended, with `remark.KEY` = a sentence each, and call it `name`."""

    def link(self) -> str | None:
        """The run's page, if a server shows it."""


@dataclass
class NoTracker:
    """Tracks nothing."""

    uri: str | None = None
    run_id: str | None = None
    experiment_id: str | None = None

    def start(self, info: RunInfo) -> None:
        pass

    def point(self, index: int, metrics: Mapping[str, float]) -> None:
        pass

    def series(self, index: int, columns: Mapping[str, Mapping[int, float]]) -> None:
        pass

    def finish(
        self,
        status: str,
        scalars: Mapping[str, float],
        curve: Sequence[Mapping[str, Any]] | None,
        artifacts: Path | None,
    ) -> None:
        pass

    def remark(self, remarks: Mapping[str, str], name: str) -> None:
        pass

    def link(self) -> str | None:
        return None


def open_tracker(tracking: Tracking, experiment: str, cwd: Path) -> Tracker:
    """Find or create the store, the experiment and its view; no run is started yet.

    experiment: its name where neither `tracking` nor the environment gives one.
    cwd: the folder where the command was typed. Raises TrackingError, within five seconds if a server is down.
    """
    if tracking.kind == "none":
        return NoTracker()
    from slotlab.tracking.mlflow_tracker import MlflowTracker

    name = tracking.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or experiment
    return MlflowTracker(resolve_uri(tracking.uri, cwd), name)


def resolve_uri(uri: str | None, cwd: Path) -> str:
    """The tracking URI in use, made absolute. Raises TrackingError for what is neither sqlite nor a server."""
    inherited = os.environ.get("MLFLOW_TRACKING_URI")
    if inherited and not uri:
        uri = os.environ["MLFLOW_TRACKING_URI"] = take_password(inherited)
    uri = take_password(uri or "sqlite:///mlflow.db")
    scheme, _, rest = uri.partition("://")
    if scheme in ("http", "https") and rest:
        return uri.rstrip("/")
    path = rest.removeprefix("/")  # sqlite:///relative, sqlite:////absolute
    if scheme == "sqlite" and path and path != ":memory:":
        resolved = f"sqlite:///{(cwd / path).resolve()}"
        if "?" in resolved or "%" in resolved:
            raise TrackingError(f"tracking.uri={resolved}: MLflow misreads ? and % in a path; choose another")
        return resolved
    raise TrackingError(
        f"tracking.uri={uri}: MLflow can keep runs in a database file or on a server only; "
        f"allowed: sqlite:///{cwd.resolve() / 'mlflow.db'} (the file you like), http://host:port, https://host"
    )


def take_password(text: str) -> str:
    """`text` without the `user:password@` of a server in it, which goes where MLflow looks for it and nobody else does.

    So it is in no file, tag, artifact or message. Raises TrackingError for two servers that differ in it.
    """
    found = dict.fromkeys(match[1] for match in LOGIN.finditer(text))
    logins = [tuple(map(unquote, login.partition(":")[::2])) for login in found]
    if any(not password for _, password in logins):
        raise TrackingError("tracking.uri: with a user, MLflow needs a password too, as in https://user:password@host")
    if len(logins) > 1:
        raise TrackingError("tracking.uri: MLflow knows one user and password at a time; must be the same for all servers")
    for user, password in logins:
        os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
    return without_password(text)


def without_password(text: str) -> str:
    """`text` without the `user:password@` of any URL in it."""
    return LOGIN.sub("", text)
