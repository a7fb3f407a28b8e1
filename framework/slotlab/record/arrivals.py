"""The requests of a run as they were drawn: written down whole, and read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slotlab.reading import reading
from slotlab.record.schema import ARRIVALS, load_table
from slotlab.workload import Arrival

LOST = "words, shared prefixes, sessions and who was rejected or aborted"  # of a record without arrivals.parquet
NAMES = [field.name for field in fields(Arrival)]
assert ARRIVALS.names[2:] == NAMES, f"arrivals.parquet would lose what makes a request what it is: {NAMES}"


def arrivals_table(draws: Sequence[Sequence[Arrival]]) -> pa.Table:
    """One row per repeat and request."""
    rows = [(repeat, id, arrival) for repeat, drawn in enumerate(draws) for id, arrival in enumerate(drawn)]
    columns: dict[str, list[Any]] = {"repeat": [row[0] for row in rows], "id": [row[1] for row in rows]}
    columns |= {name: [getattr(arrival, name) for *_, arrival in rows] for name in NAMES}
    columns["prefix_group"] = [None if group is None else str(group) for group in columns["prefix_group"]]
    columns["text"] = [None if text is None else json.dumps(text) for text in columns["text"]]
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in ARRIVALS}, schema=ARRIVALS)


def read_arrivals(path: Path, repeat: int) -> list[Arrival]:
    """The requests of one repeat, equal to those that were drawn; after the last repeat comes the first again."""
    table = load_table(path)
    repeats = 1 + (pc.max(table["repeat"]).as_py() or 0)
    rows = table.filter(pc.equal(table["repeat"], repeat % repeats)).select(NAMES).to_pylist()
    with reading(path, "record of requests"):
        return [arrival(row) for row in rows]


def arrival(row: dict[str, Any]) -> Arrival:
    """A row as it was before it was written down."""
    if row["prefix_group"] is not None:
        row["prefix_group"] = int(row["prefix_group"])
    if row["text"] is not None:
        text = json.loads(row["text"])
        row["text"] = text if isinstance(text, str) else tuple((role, words) for role, words in text)
    return Arrival(**row)
