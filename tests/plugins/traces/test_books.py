"""Which rows are served, what becomes of the others, and what is refused: one line with file, row and reason."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from slotlab import Streams, UserError
from slotlab_plugins.workloads.traces.azure import Azure
from slotlab_plugins.workloads.traces.burstgpt import BurstGPT
from slotlab_plugins.workloads.traces.mooncake import Mooncake

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
STAMP = "2023-11-16 18:15:46.6805900"


def seconds(*rows: tuple[int, int, int]) -> list[str]:
    """Rows of an Azure trace: second, prompt, output."""
    return [f"2023-11-16 00:00:{second:02d}.0000000,{prompt},{output}" for second, prompt, output in rows]


def test_every_row_read_was_emitted_or_dropped_for_a_named_reason(write, draw):
    workload = Azure(write(AZURE, *seconds((0, 10, 5), (1, 900, 5), (2, 0, 5), (3, 10, 0), (4, 20, 1))), max_prompt=500)
    assert [arrival.time for arrival in draw(workload)] == [0, 4]
    assert workload.facts()["rows"] == "read 5 = 2 emitted + 1 too_long + 1 no_prompt + 1 no_output"


def test_a_window_starts_its_own_clock_and_the_first_n_of_it_are_taken(write, draw):
    path = write(AZURE, *seconds(*((second, second + 1, 1) for second in range(10))))
    workload = Azure(path, start=3, end=8)
    assert [(a.time, a.prompt_tokens) for a in draw(workload)] == [(0, 4), (1, 5), (2, 6), (3, 7), (4, 8)]
    assert workload.facts()["rows"] == "read 8 = 5 emitted + 3 before_start"
    assert len(draw(Azure(path, start=3, requests=2))) == 2


def test_no_more_is_read_than_is_asked_for(write):
    path = write(AZURE, *seconds((0, 10, 5), (1, 10, 5)), "this row cannot be read")
    arrivals = iter(Azure(path, max_tokens=9).draw(Streams(0)))
    assert [next(arrivals).time, next(arrivals).time] == [0, 1]
    with pytest.raises(UserError, match="row 4: has 1 values for 3 columns"):
        next(arrivals)
    assert (
        len(list(Azure(path, requests=2).draw(Streams(0)))) == len(list(Azure(path, end=1.5, requests=2).draw(Streams(0)))) == 2
    )


def test_all_requests_carry_one_cap_the_largest_output_or_the_one_that_was_asked_for(write, draw):
    path = write(AZURE, *seconds((0, 10, 5), (1, 10, 80), (2, 10, 20)))
    assert {arrival.max_tokens for arrival in draw(Azure(path))} == {80}
    workload = Azure(path, max_tokens=30)
    assert [(a.output_tokens, a.max_tokens) for a in draw(workload)] == [(5, 30), (30, 30), (20, 30)]
    assert workload.facts()["cut"] == "1 outputs at max_tokens=30"


def test_nothing_left_is_an_error_that_says_why(write, draw):
    path = write("Timestamp,Request tokens,Response tokens", "1,10,0", "2,10,0")
    with pytest.raises(UserError, match=re.escape(f"{path}: no request is left: read 2 = 0 emitted + 2 failed")):
        draw(BurstGPT(path))
    with pytest.raises(UserError, match="no request is left: read 0 = 0 emitted"):
        draw(Azure(write(AZURE)))


@pytest.mark.parametrize(
    ("lines", "row", "reason"),
    [
        ([], 1, "the file is empty"),
        (["TIMESTAMP,Context,GeneratedTokens"], 1, "the column ContextTokens is missing; there is: TIMESTAMP, Context, G"),
        ([f"{AZURE},ContextTokens"], 1, "the column ContextTokens is twice; there is: "),
        ([AZURE, f"{STAMP},10,5", f"{STAMP},10"], 3, "has 2 values for 3 columns"),
        ([AZURE, f"{STAMP},ten,5"], 2, "ContextTokens=ten: must be a whole number, at least 0"),
        ([AZURE, f"{STAMP},10.5,5"], 2, "ContextTokens=10.5: must be a whole number, at least 0"),
        ([AZURE, f"{STAMP},10,-5"], 2, "GeneratedTokens=-5: must be a whole number, at least 0"),
        ([AZURE, f"{STAMP},nan,5"], 2, "ContextTokens=nan: must be a whole number, at least 0"),
        ([AZURE, "16.11.2023,10,5"], 2, "TIMESTAMP=16.11.2023: must be like 2023-11-16 18:15:46.6805900"),
        ([AZURE, "2023-11-16 18:15:46.x,10,5"], 2, "TIMESTAMP=2023-11-16 18:15:46.x: must be like"),
        ([AZURE, *seconds((5, 1, 1), (3, 1, 1))], 3, "comes 2 s before the row above it: sort the file by time"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_file_row_and_reason(write, draw, lines, row, reason):
    path = write(*lines)
    with pytest.raises(UserError) as error:
        draw(Azure(path))
    assert str(error.value).startswith(f"{path}: row {row}: {reason}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "row", "reason"),
    [
        ([], 1, "the file is empty"),
        (['{"timestamp": 0'], 1, "is no JSON"),
        (["", "[1]"], 2, "is no JSON object"),
        (['{"timestamp": 0}'], 1, "hash_ids is missing; there is: timestamp"),
        (
            ['{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1]}'],
            1,
            "1 hash_ids do not cover input_length",
        ),
        (['{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": 1}'], 1, "hash_ids=1: must be a list of whole"),
        (['{"timestamp": "x", "input_length": 6, "output_length": 5, "hash_ids": [1]}'], 1, "timestamp=x: must be a number"),
        (['{"timestamp": 0, "input_length": null, "output_length": 5, "hash_ids": []}'], 1, "input_length=None: must be a whole"),
    ],
)
def test_json_lines_that_cannot_be_read_are_one_line_too(write, draw, lines, row, reason):
    path = write(*lines)
    with pytest.raises(UserError) as error:
        draw(Mooncake(path))
    assert str(error.value).startswith(f"{path}: row {row}: {reason}") and "\n" not in str(error.value)


def test_a_binary_file_is_refused_in_one_line(tmp_path, draw):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00\x9f" * 50)
    for kind in (Azure, Mooncake):
        with pytest.raises(UserError, match=r"trace\.csv: row 1: is no "):
            draw(kind(str(path)))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "workload.path=: must be a file that is there"),
        (("workload.path=nowhere.csv",), "workload.path=nowhere.csv: must be a file that is there"),
        (
            ("workload.path={path}", "workload.requests=0"),
            "workload.requests=0: must be at least 1 and at most 10000000, or null",
        ),
        (
            ("workload.path={path}", "workload.requests=9"),
            "workload.requests=9: must be at most 2 ({path}: read 2 = 2 emitted)",
        ),
        (("workload.path={path}", "workload.start=5", "workload.end=5"), "workload.end=5.0: must be greater than start=5.0"),
        (("workload.path={path}", "workload.start=-1"), "workload.start=-1.0: must be at least 0"),
        (("workload.path={path}", "workload.tenants=[{{name:a,share:0}}]"), "workload.tenants[a].share=0.0: must be greater"),
        (
            ("workload.path={path}", "workload.tenants=[{{name:a}},{{name:a}}]"),
            "workload.tenants=['a', 'a']: must be tenants with",
        ),
        (("workload=azure_conv",), "workload.path=traces/azure/AzureLLMInferenceTrace_conv.csv: must be a file that is there"),
        (("workload.path={path}", "load=rates"), "load: all requests of the workload come at one instant, which no rate can"),
        (
            ("workload.path={path}", "workload.end=1e-9", "workload.start=0", "workload.max_prompt=1"),
            "{path}: no request is left",
        ),
    ],
)
def test_a_bad_option_is_one_line(slotlab, write, monkeypatch, words, line):
    path = write(AZURE, *seconds((0, 10, 5), (0, 10, 5)))
    monkeypatch.delenv("SLOTLAB_TRACES", raising=False)
    choice = [] if words and words[0].startswith("workload=") else ["workload=azure"]
    said = slotlab("engine=simulated", *choice, *(word.format(path=path) for word in words))
    assert said.code == 2 and said.err.startswith(f"slotlab: {line.format(path=path)}") and said.err.count("\n") == 1


def test_a_run_prints_its_books_once_and_records_them(slotlab, write):
    path = write(AZURE, *seconds((0, 10, 5), (1, 900, 5), (2, 20, 3)))
    said = slotlab("engine=simulated", "workload=azure", f"workload.path={path}", "workload.max_prompt=500")
    assert said.code == 0, said.err
    assert said.out.count("rows read 3 = 2 emitted + 1 too_long") == 1
    assert "load=native" in said.out and "wall time " in said.out and "peak memory " in said.out
    meta = json.loads((said.folder / "meta.json").read_text())
    assert meta["workload"] == {"trace": "trace.csv", "rows": "read 3 = 2 emitted + 1 too_long"}
    assert meta["peak_mib"] > 10 and meta["wall_s"] > 0


def test_repeats_that_serve_the_same_requests_are_said_to(slotlab, write):
    path = write(AZURE, *seconds((0, 10, 5), (1, 20, 3)))
    words = ("engine=simulated", "workload=azure", f"workload.path={path}", "load=native", "load.repeats=2")
    assert "the same requests each time" in slotlab(*words).out
    synthesised = slotlab(*words, "workload.tenants=[{name:a},{name:b}]", "seed=1").out
    assert "the same requests each time" not in synthesised and "synthesised by share" in synthesised


def test_rates_scale_the_times_of_a_trace_so_that_their_mean_is_the_rate(slotlab, write):
    path = write(AZURE, *seconds((0, 10, 5), (1, 10, 5), (8, 10, 5)))
    said = slotlab("engine=simulated", "workload=azure", f"workload.path={path}", "load=rates", "load.rates=[4]")
    assert said.code == 0, said.err
    assert list(pd.read_parquet(said.folder / "requests.parquet")["scheduled_arrival"]) == [0, 0.0625, 0.5]
