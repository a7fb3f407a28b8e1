"""The run folder: complete without MLflow."""

from __future__ import annotations

import csv
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slotlab.errors import UserError
from slotlab.writing import write_text, writing

Row = Mapping[str, Any]


def new_run_id() -> str:
    """`<date>/<time to microseconds>-<short id>`: two commands typed at once never share a folder."""
    now = datetime.now()
    return f"{now:%Y-%m-%d}/{now:%H-%M-%S-%f}-{uuid.uuid4().hex[:6]}"


def make_folder(folder: Path) -> Path:
    """Create `folder`; one line if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{folder}: cannot be written to ({error.strerror}); set hydra.run.dir or hydra.sweep.dir") from None
    return folder


def write_json(path: Path, value: Any) -> None:
    """Strict JSON: no NaN, no infinity."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False, default=str) + "\n")


def write_curve(folder: Path, rows: Sequence[Row]) -> None:
    """One row per load point, as `curve.json` and `curve.csv`; what is undefined is missing, or an empty field."""
    write_json(folder / "curve.json", list(rows))
    names = list(dict.fromkeys(name for row in rows for name in row))
    with writing(folder / "curve.csv") as partial, partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def stamp() -> str:
    """Now, in local time with its offset."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
