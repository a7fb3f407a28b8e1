"""From a recorder's rows to the tables of the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from slotlab.record.recorder import Recorder
from slotlab.record.schema import DECISIONS, HOST, REQUESTS, SERIES, SLOTS, STEPS, TABLES, write_table


def steps_table(recorder: Recorder) -> pa.Table:
    """One row per step: a jump is written out as the steps that it stands for."""
    rows = recorder.steps
    if not rows:
        return STEPS.empty_table()
    counts = np.array([len(row["duration"]) for row in rows], np.int64)
    columns: dict[str, Any] = {
        "step": np.arange(counts.sum()),
        "start": np.fromiter(chain.from_iterable(row["start"] for row in rows), np.float64),
        "duration": np.fromiter(chain.from_iterable(row["duration"] for row in rows), np.float64),
    }
    for name in ("kv_used", "kv_reserved"):
        columns[name] = np.concatenate([np.atleast_1d(row[name]) for row in rows])
    for name in STEPS.names:
        if name in ("point", "repeat"):
            columns[name] = np.full(counts.sum(), getattr(recorder, name))
        elif name not in columns:
            columns[name] = np.repeat(np.array([row[name] for row in rows]), counts)
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in STEPS}, schema=STEPS)


def requests_table(recorder: Recorder) -> pa.Table:
    """One row per request."""
    rows = recorder.requests()
    times = [row.pop("token_times") for row in rows]  # millions of them: no Python object is made for each
    ends = np.cumsum([0, *map(len, times)])
    flat = np.fromiter(chain.from_iterable(times), np.float64, ends[-1])
    columns = {name: pa.array([row[name] for row in rows], REQUESTS.field(name).type) for name in REQUESTS.names[:-1]}
    columns["token_times"] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)
    return pa.table(columns, schema=REQUESTS)


def slots_table(recorder: Recorder) -> pa.Table:
    """One row per held slot and step."""
    return _labelled(recorder, recorder.seats.rows, SLOTS)


def host_table(recorder: Recorder) -> pa.Table:
    """Wall time of each plan."""
    return _labelled(recorder, recorder.hosts, HOST)


def decisions_table(recorder: Recorder) -> pa.Table:
    """One row per step and request that a decision left without a token; within a step in the order of decision."""
    rows = [
        {"step": row["step"] + i, "request": row["request"], "reason": row["reason"]}
        for row in recorder.decisions
        for i in range(row["steps"])
    ]
    return _labelled(recorder, sorted(rows, key=lambda row: row["step"]), DECISIONS)


def _labelled(recorder: Recorder, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    label = {"point": recorder.point, "repeat": recorder.repeat}
    return pa.Table.from_pylist([{**label, **row} for row in rows], schema=schema)


def frames(recorder: Recorder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Requests and steps, for the metrics."""
    return requests_table(recorder).to_pandas(), steps_table(recorder).to_pandas()


def write_series(tables: Sequence[pa.Table], folder: Path) -> None:
    """The series of all load points and repeats."""
    write_table(pa.concat_tables([SERIES.empty_table(), *tables]), folder / "series.parquet")


def write_tables(recorders: Sequence[Recorder], folder: Path) -> None:
    """The tables of a run; slots.parquet and decisions.parquet only if something was charted or logged."""
    makers = {
        "requests": requests_table,
        "steps": steps_table,
        "slots": slots_table,
        "decisions": decisions_table,
        "host": host_table,
    }
    for name, make in makers.items():
        table = pa.concat_tables([TABLES[name].empty_table(), *map(make, recorders)])
        if name not in ("slots", "decisions") or len(table):
            write_table(table, folder / f"{name}.parquet")
