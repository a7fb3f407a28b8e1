"""Every bad cell of every format, in its first row and in a later one: refused with file, row and reason, or read rightly."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from slotlab import UserError, Workload
from slotlab_plugins.workloads.text import Text
from slotlab_plugins.workloads.traces.azure import Azure
from slotlab_plugins.workloads.traces.bailian import Bailian
from slotlab_plugins.workloads.traces.burstgpt import BurstGPT
from slotlab_plugins.workloads.traces.lengths import Lengths, Vidur
from slotlab_plugins.workloads.traces.mooncake import Mooncake
from slotlab_plugins.workloads.traces.servegen import ServeGen

GOOD = 5  # what every cell may be
STAMP = "2023-11-16 18:15:46.5"
DATASET = json.dumps({"0": {"input_tokens": "{10: 1.0}", "output_tokens": "{3: 1.0}"}})


@dataclass
class Format:
    """A format: the columns of a row, in the order of the file, and what stands in a good one."""

    kind: type[Workload]
    row: dict[str, Any]
    json: bool = False
    header: bool = True

    def lines(self, *rows: dict[str, Any]) -> list[str]:
        """The lines of a file."""
        if self.json:
            return [json.dumps(row) for row in rows]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*([self.row] if self.header else []), *(row.values() for row in rows)])
        return text.getvalue().splitlines()


FORMATS = {
    "azure": Format(Azure, {"TIMESTAMP": STAMP, "ContextTokens": GOOD, "GeneratedTokens": GOOD}),
    "burstgpt": Format(BurstGPT, {"Timestamp": GOOD, "Request tokens": GOOD, "Response tokens": GOOD}),
    "lengths": Format(Lengths, {"num_prefill_tokens": GOOD, "num_decode_tokens": GOOD}),
    "vidur": Format(Vidur, {"arrived_at": GOOD, "num_prefill_tokens": GOOD, "num_decode_tokens": GOOD}),
    "mooncake": Format(Mooncake, {"timestamp": GOOD, "input_length": GOOD, "output_length": GOOD, "hash_ids": [3]}, json=True),
    "bailian": Format(
        Bailian,
        {
            "chat_id": GOOD,
            "parent_chat_id": -1,
            "timestamp": GOOD,
            "input_length": GOOD,
            "output_length": GOOD,
            "hash_ids": [3],
        },
        json=True,
    ),
    "text": Format(Text, {"prompt": "hello", "tenant": "a", "priority": GOOD}, json=True),
    "servegen": Format(ServeGen, {"start": 0, "rate": 0.1, "cv": 1, "pattern": "Gamma", "shape": 1, "scale": 1}, header=False),
}
TIMES = ("Timestamp", "arrived_at", "timestamp", "start")
MISSING = object()
BAD = {
    "missing": MISSING, "empty": "", "blank": " ", "nan": "nan", "inf": "inf", "-inf": "-inf", "negative": -1, "1e300": 1e300,
    "10**19": 10**19, "10**400": 10**400, "word": "abc", "0x10": "0x10", "1_000": "1_000", "arabic": "٣", "true": True,
    "null": None, "list": [1], "object": {"a": 1}, "fraction": 5.5, "NaN": float("nan"), "NUL": "5\x00", "lines": "5\n6",
}  # fmt: skip
UNREAD = {"text": {"tenant"}, "servegen": {"cv", "scale"}}  # any words are a tenant; two columns say nothing
ALLOWED = {
    ("bailian", "parent_chat_id", "negative"), ("mooncake", "hash_ids", "list"), ("bailian", "hash_ids", "list"),
    *((name, column, "fraction") for name, column in [
        ("burstgpt", "Timestamp"), ("vidur", "arrived_at"), ("mooncake", "timestamp"), ("bailian", "timestamp"),
        ("servegen", "start"), ("servegen", "rate"), ("servegen", "shape")]),
    *(("text", "prompt", bad) for bad in BAD if isinstance(BAD[bad], str) and bad != "empty"),
    *(("text", "priority", bad) for bad in ("missing", "negative")),
}  # fmt: skip
CASES = [
    (name, column, bad)
    for name, form in FORMATS.items()
    for column in form.row
    for bad in BAD
    if column not in UNREAD.get(name, ()) and (form.json or not isinstance(BAD[bad], list | dict))
]


@pytest.mark.parametrize(("name", "column", "bad"), CASES)
def test_a_bad_cell_is_refused_wherever_it_stands(write, draw, name, column, bad):
    form = FORMATS[name]
    good = form.row
    later = {column: 700 if column in TIMES else value for column, value in good.items()}
    for first in (True, False):
        row = {**(good if first else later), column: BAD[bad]}
        if BAD[bad] is MISSING:
            del row[column]
        write(DATASET, name="t-dataset.json")
        lines = form.lines(row, later) if first else form.lines(good, row)
        path = write(*lines, name="t-trace.csv")
        number = (0 if form.json else form.header + (bad == "lines")) + (1 if first else 2)
        try:
            arrivals = draw(form.kind(path))
        except UserError as error:
            assert (name, column, bad) not in ALLOWED
            assert str(error).count("\n") == 0 and path in str(error), error
            assert f"row {number}: " in str(error) or f"line {number}: " in str(error), error
        else:
            assert (name, column, bad) in ALLOWED, arrivals


@pytest.mark.parametrize(
    ("lines", "row", "reason"),
    [
        (["0,5,1,Gamma,1e-300,1"], 1, "shape=1e-300: must be from 0.01 to 1e+06"),
        (["0,5,1,Weibull,1e-9,1"], 1, "shape=1e-9: must be from 0.01 to 1e+06"),
        (["0,1e12,1,Gamma,1,1"], 1, "rate=1e+12: 6e+14 requests, must be at most 10000000"),
        (["0,0,1,,,", "9e12,1,1,Gamma,1,1"], 2, "rate=1: 9e+12 requests, must be at most 10000000"),
    ],
)
def test_windows_of_servegen_that_would_never_end_are_refused(write, draw, lines, row, reason):
    write(DATASET, name="t-dataset.json")
    path = write(*lines, name="t-trace.csv")
    with pytest.raises(UserError) as error:
        draw(ServeGen(path, requests=5))
    assert str(error.value) == f"{path}: row {row}: {reason}"


@pytest.mark.parametrize("law", ["{5: 0.0}", "{-5: 1.0}", "{5: -1.0}", "{5: 1e400}", "{10**19: 1}", "{5.5: 1.0}", "[" * 5000])
def test_frequencies_that_are_none_are_refused(write, law):
    dataset = write(json.dumps({"0": {"input_tokens": law, "output_tokens": "{3: 1.0}"}}), name="t-dataset.json")
    with pytest.raises(UserError, match=r"is no ServeGen dataset") as error:
        ServeGen(write("0,1,1,Gamma,1,1", name="t-trace.csv")).lengths()
    assert str(error.value).startswith(dataset) and "\n" not in str(error.value)


CSV = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,5,5\n"
JSON = b'{"timestamp": 5, "input_length": 5, "output_length": 5, "hash_ids": [3]}\n'
FILES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda good: b"",
    "a byte order mark": lambda good: b"\xef\xbb\xbf",
    "empty lines": lambda good: b"\n\n\r\n",
    "gzip": gzip.compress,
    "UTF-16": lambda good: good.decode().encode("utf-16"),
    "NUL bytes": lambda good: b"\x00" * 100 + good,
    "deep nesting": lambda good: b"[" * 100_000,
    "a number of 5000 digits": lambda good: good.replace(b"5", b"5" * 5000),
    "an open quote": lambda good: good.replace(b"5,", b'"5,', 1),
    "a million columns": lambda good: b"a," * 1_000_000 + b"a\n",
}


@pytest.mark.parametrize("damage", FILES)
@pytest.mark.parametrize(("kind", "good"), [(Azure, CSV), (Mooncake, JSON)], ids=["csv", "json"])
def test_a_file_of_something_else_is_refused_in_one_short_line(tmp_path, draw, kind, good, damage):
    path = tmp_path / "t"
    path.write_bytes(FILES[damage](good))
    with pytest.raises(UserError) as error:
        draw(kind(str(path)))
    assert str(error.value).startswith(str(path)) and str(error.value).isprintable() and len(str(error.value)) < 500


@pytest.mark.parametrize(
    "change", [lambda good: good.rstrip(b"\n"), lambda good: good.replace(b"\n", b"\r\n")], ids=["end", "CRLF"]
)
@pytest.mark.parametrize(("kind", "good"), [(Azure, CSV), (Mooncake, JSON)], ids=["csv", "json"])
def test_ends_of_lines_do_not_matter(tmp_path, draw, kind, good, change):
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf" + change(good))
    assert [(arrival.time, arrival.prompt_tokens) for arrival in draw(kind(str(path)))] == [(0, 5)]


def test_stamps_with_and_without_a_zone_cannot_be_told_apart_in_time(write, draw):
    row, zoned = "2023-11-16 18:15:46,5,5", "2023-11-16 18:15:47Z,5,5"
    for lines in ((row, zoned), (zoned, row.replace(":46", ":48"))):
        with pytest.raises(UserError, match=r"row 3: TIMESTAMP=.*: all rows or none must have a zone"):
            draw(Azure(write("TIMESTAMP,ContextTokens,GeneratedTokens", *lines)))


@pytest.mark.parametrize("stamp", ["2016-12-31 23:59:60", "2023-W46-4", "2023-11-16", "20231116T181546", "2023-13-01 00:00:00"])
def test_a_stamp_that_is_no_second_of_a_day_is_refused(write, draw, stamp):
    with pytest.raises(UserError, match=f"row 2: TIMESTAMP={stamp}: must be like"):
        draw(Azure(write("TIMESTAMP,ContextTokens,GeneratedTokens", f"{stamp},5,5")))


@pytest.mark.parametrize(
    "row", [b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b'{"prompt": "x", "priority": 3000000000}', b"[" * 100_000]
)
def test_a_line_of_prompts_that_no_tokenizer_or_record_takes_is_refused(tmp_path, draw, row):
    path = tmp_path / "t"
    path.write_bytes(row)
    with pytest.raises(UserError, match=f"^workload.path={path}: line 1: "):
        draw(Text(str(path)))
