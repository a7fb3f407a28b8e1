"""`slotlab export`: a run's tables for other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slotlab.errors import UserError
from slotlab.lab.folder import write_json
from slotlab.lab.progress import console
from slotlab.reading import read_object, read_objects, reading
from slotlab.record.decomposition import PARTS, decompose
from slotlab.record.latency import request_latencies
from slotlab.record.schema import TABLES, load_table, read_table
from slotlab.writing import writing

Row = Mapping[str, Any]


def export_run(words: list[str]) -> int:
    """`slotlab export RUN --format csv|json|parquet [--out DIR]`: the run's tables, its curve, and `meta.json`.

    `requests` gets columns for each request's latencies and what they are made of (see METRICS). What is undefined is
    an empty field, null, or a null of Parquet. By default into the folder `export` of the run.
    """
    folder, kind, out = parse(words)
    out.mkdir(parents=True, exist_ok=True)
    write, meta, found = WRITERS[kind], read_object(folder / "meta.json", {}), tables(folder)
    for name, table in found.items():
        with writing(out / f"{name}.{kind}") as partial:
            write(table, partial)
    write_json(out / "meta.json", meta)
    console.print(f"exported: {out}")
    return 0


def parse(words: list[str]) -> tuple[Path, str, Path]:
    """The run's folder, the format, and where to write."""
    usage = "must be RUN --format csv|json|parquet [--out DIR]"
    options: dict[str, str | None] = {"--format": None, "--out": None}
    folders, rest = list[Path](), iter(words)
    for word in rest:
        if word in options:
            if options[word] is not None:
                raise UserError(f"export {word}: must be given once")
            options[word] = next(rest, None)
        else:
            folders.append(Path(word))
    kind, out = options["--format"], options["--out"]
    if len(folders) != 1 or (out is None and "--out" in words):
        raise UserError(f"export {' '.join(words)}: {usage}")
    if kind not in WRITERS:
        raise UserError(f"export --format {kind}: must be {', '.join(WRITERS)}")
    if not (folders[0] / "requests.parquet").exists():
        raise UserError(f"{folders[0]}: must be the folder of a run (with requests.parquet)")
    return folders[0], kind, Path(out) if out else folders[0] / "export"


def tables(folder: Path) -> dict[str, pa.Table]:
    """The tables of a run, `requests` with what follows from it, and the curve."""
    found = {name: load_table(path) for name in TABLES if (path := folder / f"{name}.parquet").exists()}
    found["requests"] = with_latencies(folder, found["requests"])
    curve = read_objects(folder / "curve.json")
    names = dict.fromkeys(name for row in curve for name in row)
    with reading(folder / "curve.json", "curve"):
        found["curve"] = pa.table({name: [row.get(name) for row in curve] for name in names})
    return found


def with_latencies(folder: Path, table: pa.Table) -> pa.Table:
    """`requests` with its latencies and their parts as further columns."""
    requests, steps = (read_table(folder / f"{name}.parquet") for name in ("requests", "steps"))
    path = folder / "slots.parquet"
    parts = decompose(requests, steps, read_table(path) if path.exists() else None)
    for name, values in (request_latencies(requests) | {name: parts[name].to_numpy() for name in PARTS}).items():
        table = table.append_column(name, pa.array(values, pa.float64(), mask=np.isnan(values)))
    return table


def rows_of(table: pa.Table) -> Iterator[Row]:
    """The rows as plain values, a part of the table at a time."""
    for batch in table.to_batches(max_chunksize=4096):
        yield from batch.to_pylist()


def write_csv(table: pa.Table, path: Path) -> None:
    """An empty field for what is missing; lists as JSON."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, table.column_names, lineterminator="\n")
        writer.writeheader()
        for row in rows_of(table):
            writer.writerow({name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()})


def write_json_rows(table: pa.Table, path: Path) -> None:
    """A list of objects, one a line. Strict: neither NaN nor Infinity can be written."""
    with path.open("w") as file:
        file.write("[")
        for i, row in enumerate(rows_of(table)):
            file.write((",\n " if i else "\n ") + json.dumps(row, allow_nan=False))
        file.write("\n]\n")


def write_parquet(table: pa.Table, path: Path) -> None:
    """With the versions of schema and metrics in the file's metadata."""
    pq.write_table(table, path, compression="zstd")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {"csv": write_csv, "json": write_json_rows, "parquet": write_parquet}
