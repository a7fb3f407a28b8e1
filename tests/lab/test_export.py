"""`slotlab export`: every table in every format, whatever became of the requests."""

from __future__ import annotations

import csv
import json
from typing import Any, NoReturn

import pandas as pd
import pyarrow.parquet as pq
import pytest

SIMULATED = ("engine=simulated", "workload=explicit", "batching.max_num_seqs=2")
FATES = {  # what became of the requests: options of the run
    "one token each": ("workload.lengths=[1,1,1]",),
    "one and two tokens": ("workload.lengths=[1,2]",),
    "all rejected": ("workload.lengths=[2,3]", "workload.prompts=[400,400]", "engine.num_blocks=4"),
    "some rejected": ("workload.lengths=[2,3]", "workload.prompts=[400,4]", "engine.num_blocks=4"),
    "one request": ("workload.lengths=[5]",),
}


def no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


def strict(path) -> Any:
    return json.loads(path.read_text(), parse_constant=no_constant)


@pytest.mark.parametrize("fate", FATES)
def test_every_fate_goes_through_every_exporter(slotlab, fate):
    """guidellm#434, vllm-omni#6976, inference-perf (max of no success), ipex-llm#12271: None, NaN, division by n - 1."""
    said = slotlab(*SIMULATED, *FATES[fate])
    assert said.code == 0, said.err
    requests = pq.read_table(said.folder / "requests.parquet").to_pylist()
    for kind in ("csv", "json", "parquet"):
        out = said.folder / kind
        done = slotlab("export", str(said.folder), "--format", kind, "--out", str(out))
        assert done.code == 0 and str(out) in done.out, done.err
        names = {path.stem for path in out.glob(f"*.{kind}")} - {"meta"}
        assert names >= {"requests", "steps", "host", "curve"}
    rows = strict(said.folder / "json" / "requests.json")
    assert [{key: row[key] for key in requests[0]} for row in rows] == requests
    assert pq.read_table(said.folder / "parquet" / "requests.parquet").to_pylist() == rows
    with (said.folder / "csv" / "requests.csv").open() as file:
        flat = list(csv.DictReader(file))
    assert [json.loads(row["token_times"]) for row in flat] == [row["token_times"] for row in rows]
    assert [row["e2e"] == "" for row in flat] == [row["status"] != "finished" for row in rows]
    assert [row["tpot"] == "" for row in flat] == [row["output_tokens"] < 2 for row in rows]
    assert strict(said.folder / "json" / "curve.json") == strict(said.folder / "curve.json")
    assert strict(said.folder / "json" / "meta.json") == strict(said.folder / "meta.json")


def test_a_run_that_was_stopped_before_its_first_request_is_exported(slotlab, tmp_path):
    """llmperf: ZeroDivisionError; here every table is empty, and the curve has no point."""
    from slotlab.lab.folder import write_curve, write_json
    from slotlab.record.charts import draw_curve
    from slotlab.record.tables import write_tables

    write_tables([], tmp_path)
    write_curve(tmp_path, [])
    write_json(tmp_path / "meta.json", {"status": "KILLED"})
    draw_curve([], tmp_path / "curve.png", "nothing", "s")
    for kind in ("csv", "json", "parquet"):
        said = slotlab("export", str(tmp_path), "--format", kind)
        assert said.code == 0, said.err
    assert strict(tmp_path / "export" / "requests.json") == strict(tmp_path / "export" / "curve.json") == []
    assert pq.read_table(tmp_path / "export" / "requests.parquet").num_rows == 0


def test_requests_are_exported_with_what_their_time_went_into(slotlab):
    folder = slotlab("engine=simulated", "load.rates=[100]").folder
    assert slotlab("export", str(folder), "--format", "csv").code == 0
    found = pd.read_csv(folder / "export" / "requests.csv")
    parts = found[["queued", "prefill", "decode", "stalled", "preempted"]]
    assert parts.sum(axis=1).to_numpy() == pytest.approx(found["e2e"].to_numpy())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "export : must be RUN --format csv|json|parquet"),
        (["here"], "export --format None: must be csv, json, parquet"),
        (["here", "--format", "xml"], "export --format xml: must be csv, json, parquet"),
        (["here", "--format", "csv"], "here: must be the folder of a run"),
        (["here", "there", "--format", "csv"], "export here there --format csv: must be RUN"),
        (["here", "--format", "csv", "--out"], "must be RUN --format"),
    ],
)
def test_bad_words_get_one_line(slotlab, words, line):
    said = slotlab("export", *words)
    assert said.code == 2 and line in said.err and said.err.count("\n") == 1, said.err
