"""What a process becomes that must end at once: `python -m slotlab.tracking.kill RUN_ID CODE` marks the run and exits with CODE.

The store is that of $MLFLOW_TRACKING_URI, for it may hold a password, which a command line would show.
"""

import os
import sqlite3
import sys
import time
from contextlib import closing, suppress

from slotlab.tracking.database import database, is_sqlite

SECONDS = 5.0
MARK = "UPDATE runs SET status = 'KILLED', end_time = ? WHERE run_uuid = ? AND status = 'RUNNING'"


def kill(uri: str, run_id: str) -> None:
    """Mark the run KILLED. In a database file without MLflow, whose import alone takes longer than anybody waits."""
    if is_sqlite(uri):
        with closing(sqlite3.connect(database(uri), timeout=SECONDS)) as connection, connection:
            connection.execute(MARK, (int(time.time() * 1000), run_id))
        return
    from slotlab.tracking.store import connect

    connect(uri).set_terminated(run_id, "KILLED")


if __name__ == "__main__":
    with suppress(Exception):  # the exit code is what somebody waits for
        kill(os.environ["MLFLOW_TRACKING_URI"], sys.argv[1])
    sys.exit(int(sys.argv[2]))
