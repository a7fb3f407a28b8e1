"""Names in other people's syntax: reversible, within the alphabet and the length of MLflow's keys, each its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name

from slotlab.lab.config import flatten
from slotlab.lab.report import print_table
from slotlab.lab.summary import Finished, lightest, table_rows
from slotlab.names import LIMIT, dotted, escape, fit, shown, unescape

NAMES = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["", ".", "..", "None", "~", ":", "a@b (ms)", "😀", "a/../b", "ﬀ"]
)


@given(NAMES, NAMES)
def test_every_name_has_a_key_of_its_own_that_mlflow_takes_and_that_can_be_read_back(one, other):
    key = escape(one)
    assert unescape(key) == one and (key == escape(other)) == (one == other)
    assert re.fullmatch(r"[A-Za-z0-9_\-.:]+", key)
    _validate_metric_name(key)


def test_two_tenants_landed_on_one_key():
    assert escape("a@b (ms)") == "a:40b:20:28ms:29" != escape("a#b %ms)")


def test_a_metric_of_our_own_keeps_its_name():
    assert escape("ttft_mean") == "ttft_mean" and escape("service_light-1.5") == "service_light-1.5"


@given(st.integers(LIMIT - 2, LIMIT + 40), st.sampled_from("xy"))
def test_a_key_that_is_too_long_is_cut_and_keeps_its_own(length, last):
    key = "a" * (length - 1) + last
    assert len(fit(key)) <= LIMIT and (fit(key) == key) == (length <= LIMIT)
    assert fit(key) != fit("a" * (length - 1) + "z")


@given(st.lists(NAMES, min_size=1, max_size=3), st.lists(NAMES, min_size=1, max_size=3))
def test_dotted_keys_of_different_ways_differ(one, other):
    assert (dotted(*one) == dotted(*other)) == (one == other)


def test_options_whose_names_have_dots_do_not_hide_each_other():
    assert flatten({"a": {"b": 1, "b.c": 2}, "a.b": 3, "d": {}}) == {"a.b": 1, 'a."b.c"': 2, '"a.b"': 3, "d": {}}


@pytest.mark.parametrize(("text", "line"), [("a\nb\r\x1b[2J", "a\\nb\\r\\x1b[2J"), ("tab\tß 😀 \\", "tab\\tß 😀 \\")])
def test_a_line_stays_one_line(text, line):
    assert shown(text) == line


@pytest.mark.parametrize("light", ["", "mean", "a stream", "_service", "new\nline"])
def test_the_smallest_tenant_is_found_whatever_its_name_and_hides_no_column(light):
    """The table of a sweep had one column `mean TTFT` for the tenant `mean` and for everybody."""
    point = {"rate": 1.0, "ttft_mean": 5.0, "tenant_heavy_service": 9.0, f"tenant_{light}_service": 1.0}
    point |= {f"tenant_{light}_ttft_mean": 2.0, f"tenant_{light}_service_lo": 0.0}
    (row,) = table_rows(Finished(Path(), {"name": "fcfs"}, [point]))
    assert lightest(point) == light
    assert row["mean TTFT"] == 5.0 and row[f"tenant {light}: TTFT"] == 2.0


def test_a_name_with_markup_or_emoji_codes_is_printed_as_it_is(capfd):
    print_table("[red]title", ["[bold]:fire:"], [{"[bold]:fire:": "[/]x"}])
    said = capfd.readouterr().out
    assert "[red]title" in said and "[bold]:fire:" in said and "[/]x" in said
