"""The tables of a run folder: their columns, and how they are written and read.

Times are in the unit of the run's clock (tag `time_unit`), on one clock per load point and repeat.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from slotlab.errors import UserError
from slotlab.reading import reading
from slotlab.writing import writing

SCHEMA_VERSION = "2"  # of the columns below
METRICS_VERSION = "1"  # of the formulas in slotlab.record.metrics: runs of different versions are not compared


POINT, REPEAT = ("point", pa.int32()), ("repeat", pa.int32())


def _schema(table: str, *fields: tuple[str, pa.DataType], nullable: tuple[str, ...] = ()) -> pa.Schema:
    columns = [pa.field(name, kind, nullable=name in nullable) for name, kind in fields]
    metadata = {"table": table, "schema_version": SCHEMA_VERSION, "metrics_version": METRICS_VERSION}
    return pa.schema(columns, metadata=metadata)


# What the workload drew, before any load: with it alone a run can be served again. A row per repeat and `Arrival`.
ARRIVALS = _schema(
    "arrivals",
    REPEAT,
    ("id", pa.int64()),  # index among the arrivals of its repeat
    ("time", pa.float64()),  # own seconds of a workload with `own_times` (see meta.json); else in mean gaps
    ("prompt_tokens", pa.int64()),
    ("max_tokens", pa.int64()),
    ("output_tokens", pa.int64()),  # missing: nobody knows
    ("tenant", pa.string()),
    ("priority", pa.int64()),
    ("deadline", pa.float64()),  # after the arrival
    ("weight", pa.float64()),
    ("prefix_group", pa.string()),  # a name: traces number their groups beyond 64 bits
    ("prefix_tokens", pa.int64()),
    ("follows", pa.int64()),  # id of the request whose prompt and answer this prompt begins with
    ("think", pa.float64()),
    ("text", pa.string()),  # the prompt in words, as JSON: a string, or [role, words] for each message
    nullable=("output_tokens", "deadline", "prefix_group", "follows", "text"),
)

REQUESTS = _schema(
    "requests",
    POINT,
    REPEAT,
    ("id", pa.int64()),
    ("seq", pa.int64()),  # order of submission
    ("tenant", pa.string()),
    ("priority", pa.int32()),  # lower runs first
    ("deadline", pa.float64()),
    ("scheduled_arrival", pa.float64()),  # when the client wanted to send it: latencies count from here
    ("submitted", pa.float64()),
    ("started", pa.float64()),  # the first time it got a slot
    ("first_token", pa.float64()),
    ("finish", pa.float64()),  # the last token of a finished request; missing for all others
    ("status", pa.string()),  # finished | rejected | aborted
    ("reason", pa.string()),  # why it was rejected
    ("prompt_tokens", pa.int64()),
    ("max_tokens", pa.int64()),
    ("output_tokens", pa.int64()),  # emitted
    ("cached_tokens", pa.int64()),  # prompt tokens that prefix hits saved it from ever computing
    ("predicted_output", pa.int64()),
    ("predictor", pa.string()),
    ("preemptions", pa.int64()),
    ("recomputed_tokens", pa.int64()),
    ("bypassed", pa.int64()),  # requests started after this one was skipped
    ("token_times", pa.list_(pa.float64())),  # when each output token was emitted
    nullable=("deadline", "started", "first_token", "finish", "reason"),
)

STEPS = _schema(
    "steps",
    POINT,
    REPEAT,
    ("step", pa.int64()),
    ("start", pa.float64()),
    ("duration", pa.float64()),
    ("decode_tokens", pa.int64()),
    ("prefill_tokens", pa.int64()),  # prompt tokens computed for the first time
    ("recomputed_tokens", pa.int64()),
    ("computing", pa.int64()),  # slots that computed
    ("held", pa.int64()),  # slots held, computing or not
    ("running", pa.int64()),
    ("waiting", pa.int64()),
    ("kv_used", pa.int64()),  # blocks that hold computed tokens
    ("kv_reserved", pa.int64()),  # blocks allocated
    ("padding_tokens", pa.int64()),  # computed and thrown away
    ("swapped_blocks", pa.int64()),  # copied between device and host
    ("preempted", pa.int64()),
    ("started", pa.int64()),
    ("bound", pa.string()),  # what kept the next waiting request out: slots | tokens | kv | gate | none
)

SLOTS = _schema(
    "slots",
    POINT,
    REPEAT,
    ("step", pa.int64()),
    ("slot", pa.int64()),
    ("request", pa.int64()),
    ("kind", pa.string()),  # prefill | decode | recompute | held
    ("tokens", pa.int64()),
)

# Facts of the wall clock are kept apart, so that the other files are byte-identical when a virtual run is repeated.
HOST = _schema(
    "host",
    POINT,
    REPEAT,
    ("step", pa.int64()),
    ("plan_ms", pa.float64()),
    ("commit_ms", pa.float64()),
    ("engine_ms", pa.float64()),
)

DECISIONS = _schema(
    "decisions",
    POINT,
    REPEAT,
    ("step", pa.int64()),
    ("request", pa.int64()),
    ("reason", pa.string()),  # why it got no token in this step
)

SERIES = _schema(
    "series",
    POINT,
    REPEAT,
    ("second", pa.float64()),  # where the interval begins; it ends where the next one does
    ("name", pa.string()),  # queue_depth | running | kv_used | step_tokens | service_<tenant>
    ("value", pa.float64()),
)

TABLES = {
    "arrivals": ARRIVALS,
    "requests": REQUESTS,
    "steps": STEPS,
    "slots": SLOTS,
    "host": HOST,
    "decisions": DECISIONS,
    "series": SERIES,
}


def write_table(table: pa.Table, path: Path) -> None:
    """Write `table` to `path`, whose stem names its schema (`requests.parquet`); equal tables give equal bytes.

    Chunks are joined first, for page borders follow them.
    """
    schema = TABLES[path.stem]
    assert table.schema.equals(schema), f"{path.name}: columns are\n{table.schema}\nand should be\n{schema}"
    for field in schema:
        missing = table[field.name].null_count
        assert field.nullable or not missing, f"{path.name}: {missing} values of {field.name} are missing"
    joined = table.replace_schema_metadata(schema.metadata).combine_chunks()
    with writing(path) as partial:
        pq.write_table(joined, partial, compression="zstd", row_group_size=1 << 20, store_schema=True)


def load_table(path: Path) -> pa.Table:
    """The table in `path`, whose stem names its schema. Raises UserError if it is none, or of another schema version."""
    schema = TABLES[path.stem]
    with reading(path, "Parquet file"):
        table = pq.ParquetFile(path).read()
    version = (table.schema.metadata or {}).get(b"schema_version", b"none").decode(errors="replace")
    if version != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version={version}: must be {SCHEMA_VERSION}")
    for field in schema:
        found = table.schema.field(field.name).type if field.name in table.schema.names else "missing"
        if found != field.type:
            raise UserError(f"{path}: the column {field.name} is {found}: must be {field.type}")
        if not field.nullable and table[field.name].null_count:
            raise UserError(f"{path}: {table[field.name].null_count} values of {field.name} are missing")
    return table


def read_table(path: Path) -> pd.DataFrame:
    """The table in `path`. Missing numbers are NaN, `token_times` are arrays. Raises UserError as `load_table` does."""
    frame: pd.DataFrame = load_table(path).to_pandas()
    return frame
