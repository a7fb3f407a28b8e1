"""The tables of a run folder."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slotlab.errors import UserError
from slotlab.record.schema import METRICS_VERSION, REQUESTS, SCHEMA_VERSION, SLOTS, STEPS, TABLES, read_table, write_table


def test_every_table_survives_the_disk(serve, tmp_path):
    for name, frame in serve([2, 3]).items():
        write_table(pa.Table.from_pandas(frame, TABLES[name], preserve_index=False), tmp_path / f"{name}.parquet")
        again = read_table(tmp_path / f"{name}.parquet")
        assert again.astype(str).equals(frame.astype(str))


def test_equal_tables_give_equal_bytes_however_they_are_chunked(serve, tmp_path):
    whole = pa.Table.from_pandas(serve([2, 3, 4])["slots"], SLOTS, preserve_index=False)
    chunked = pa.concat_tables([whole.slice(0, 3), whole.slice(3)])
    files = tmp_path / "a" / "slots.parquet", tmp_path / "b" / "slots.parquet"
    for file, table in zip(files, (whole, chunked), strict=True):
        file.parent.mkdir()
        write_table(table, file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_missing_values_come_back_as_missing(requests_of, tmp_path):
    rejected = pa.Table.from_pandas(requests_of({}), REQUESTS, preserve_index=False)
    write_table(rejected, tmp_path / "requests.parquet")
    row = read_table(tmp_path / "requests.parquet").iloc[0]
    assert row[["started", "first_token", "finish", "deadline"]].isna().all()
    assert row["status"] == "rejected"
    assert len(row["token_times"]) == 0


def test_versions_stand_in_the_file(tmp_path):
    write_table(STEPS.empty_table(), tmp_path / "steps.parquet")
    metadata = pq.read_schema(tmp_path / "steps.parquet").metadata
    assert metadata[b"schema_version"].decode() == SCHEMA_VERSION
    assert metadata[b"metrics_version"].decode() == METRICS_VERSION


def test_another_schema_version_is_refused_in_one_line(tmp_path):
    old = STEPS.empty_table().replace_schema_metadata({"schema_version": "0"})
    pq.write_table(old, tmp_path / "steps.parquet")
    with pytest.raises(UserError, match=rf"steps\.parquet: schema_version=0: must be {SCHEMA_VERSION}$"):
        read_table(tmp_path / "steps.parquet")


def test_a_missing_value_where_none_may_be_is_caught(requests_of, tmp_path):
    table = pa.Table.from_pylist([{**requests_of({}).iloc[0], "token_times": [], "tenant": None}], schema=REQUESTS)
    with pytest.raises(AssertionError, match="1 values of tenant are missing"):
        write_table(table, tmp_path / "requests.parquet")
