"""The database file behind a sqlite URI: made whole or not at all, by one process at a time."""

import glob
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from slotlab.tracking import TrackingError

LOCK_SECONDS, BUSY_SECONDS = 60.0, 20.0
MAGIC = b"SQLite format 3\0"


def is_sqlite(uri: str) -> bool:
    return uri.startswith("sqlite:")


def database(uri: str) -> Path:
    """The file behind an absolute sqlite URI."""
    return Path(uri.removeprefix("sqlite:///"))


@contextmanager
def one_process(uri: str) -> Iterator[None]:
    """One process at a time at a database file: MLflow creates schema and experiments without a lock.

    Raises TrackingError, before it leaves a lock file there, for a path that can hold no database.
    """
    if not is_sqlite(uri):
        yield
        return
    from filelock import FileLock

    path = database(uri)
    _refuse(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=LOCK_SECONDS):
        yield


def _refuse(path: Path) -> None:
    """What is there and is no database, or none that we may write."""
    if not path.exists():
        return
    if not path.is_file():
        raise TrackingError(f"tracking.uri=sqlite:///{path}: is not a file; choose the name of one, as {path / 'mlflow.db'}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise TrackingError(f"tracking.uri=sqlite:///{path}: may not be written to; choose another file")
    with path.open("rb") as file:
        if file.read(len(MAGIC)) not in (MAGIC, b""):
            raise TrackingError(f"tracking.uri=sqlite:///{path}: file is not a database; choose another")


def make(path: Path) -> None:
    """Create MLflow's schema where there is none yet: aside, and moved into place whole. To be called under the lock.

    The migrations take seconds and commit one by one: a database whose making was interrupted is of no use to anybody.
    """
    if path.exists() and path.stat().st_size:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # MLflow would retry a file that it cannot open for minutes
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    for leftover in (*path.parent.glob(f"{glob.escape(path.name)}.*.partial*"), path.with_name(f"{path.name}-journal")):
        leftover.unlink(missing_ok=True)  # the journal of a file that is gone, too: it would be applied to the new one
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial")  # no name twice: MLflow keeps connections
    store: Any = SqlAlchemyStore  # which says nothing of its types
    store(f"sqlite:///{aside}", (path.parent / "mlruns").as_uri()).engine.dispose()
    aside.replace(path)


def is_half_made(path: Path) -> bool:
    """Whether a database that MLflow cannot open holds nothing that anybody would miss: no run, no experiment of a name."""
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            counts: dict[str, int] = {
                name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
                for name in ("runs", "experiments")
                if name in tables
            }
    except sqlite3.Error:
        return False
    return counts.get("runs", 0) == 0 and counts.get("experiments", 0) <= 1
