"""A record from which the workload can be rebuilt: whatever makes a request what it is comes again, or the replay refuses."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotlab import Arrival
from slotlab.record.arrivals import arrivals_table, read_arrivals
from slotlab.record.schema import write_table
from slotlab.workload import digest

RUN = ("engine=simulated", "workload.requests=20", "record.oracle=false", "batching.max_num_seqs=4")
PREFIXES = ("engine.prefix_cache=true", "workload.prefixes.groups=2", "workload.prefixes.tokens.mean=64", "load.rates=[60]")
SESSIONS = ("workload.sessions.turns=3", "workload.sessions.think=0.1")
TENANTS = "workload.tenants=[{name:a,deadline:0.02,weight:3},{name:b,priority:2}]"
NAMES = ["a\\\\b", "it's", "a:b", "1", "true", "", "None", "..", "a#b", "\\${x}", "[red]", "new\nline", "\U0001f600"]
ODD = "workload.tenants=[" + ",".join(f'{{name:"{name}",weight:{i + 1}}}' for i, name in enumerate(NAMES)) + "]"
KINDS = {
    "odd names and everything at two rates, twice": (
        *PREFIXES[:-1],
        *SESSIONS,
        ODD,
        "policy=vtc",
        "load.rates=[20,80]",
        "load.repeats=2",
    ),
    "clients who think": (*SESSIONS, "load=concurrencies", "load.concurrencies=[3]", "load.think=0.05"),
    "measured rates and an early end": ("load=multiples", "load.multiples=[0.5]", "load.max_seconds=0.2"),
}


@pytest.fixture(autouse=True)
def no_charts(monkeypatch):
    """They take most of the time of a small run."""
    monkeypatch.setattr("slotlab.record.charts.draw_curve", lambda *args, **options: None)


def requests(folder) -> pd.DataFrame:
    return pd.read_parquet(folder / "requests.parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_a_rerun_serves_the_same_requests_to_the_byte(slotlab, kind):
    """Shared prefixes shared nothing, sessions were cut into single requests, a hit rate of 0.784 became 0."""
    first = slotlab(*RUN, *KINDS[kind])
    again = slotlab("rerun", str(first.folder), "record.oracle=false")
    assert again.code == 0, again.err
    for name in ("arrivals.parquet", "requests.parquet", "steps.parquet", "curve.json"):
        assert (first.folder / name).read_bytes() == (again.folder / name).read_bytes(), name
    assert ("prefix_cache=true" in str(KINDS[kind])) == (requests(again.folder)["cached_tokens"].sum() > 0)


def test_a_run_and_its_rerun_under_another_policy_are_compared(slotlab):
    first = slotlab(*RUN, *PREFIXES)
    again = slotlab("rerun", str(first.folder), "policy=sjf", "record.oracle=false")
    said = slotlab("compare", str(first.folder), str(again.folder))
    assert said.code == 0, said.err
    assert "sjf (acts as fcfs) against fcfs: " in said.out


WORDS = st.text(max_size=4)
COUNTS = st.integers(1, 10**6)
ARRIVALS = st.builds(
    Arrival,
    time=st.floats(0, 1e9),
    prompt_tokens=COUNTS,
    max_tokens=COUNTS,
    output_tokens=st.none() | COUNTS,
    tenant=WORDS,
    priority=st.integers(-(2**31), 2**31 - 1),
    deadline=st.none() | st.floats(0, 1e9),
    weight=st.floats(1e-3, 1e3),
    prefix_group=st.none() | st.integers(-(2**70), 2**70),
    prefix_tokens=COUNTS,
    follows=st.none() | COUNTS,
    think=st.floats(0, 1e9),
    text=st.none() | WORDS | st.tuples(st.tuples(WORDS, WORDS)),
)


@given(drawn=st.lists(ARRIVALS, min_size=1, max_size=3))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
def test_arrivals_are_read_as_they_were_drawn(tmp_path_factory, drawn):
    path = tmp_path_factory.mktemp("record") / "arrivals.parquet"
    write_table(arrivals_table([drawn, drawn[:1]]), path)
    assert [read_arrivals(path, repeat) for repeat in range(4)] == 2 * [drawn, drawn[:1]]


def test_the_digest_knows_each_field_that_makes_a_request_what_it_is():
    """A field that is recorded and not in the digest would let different requests be compared. Weights are policy."""
    other = {"tenant": "x", "output_tokens": None, "text": "words", "deadline": 9.0}
    base = Arrival(0.0, 1, 1, 1)
    for field in fields(Arrival):
        changed = replace(base, **{field.name: other.get(field.name, 7)})
        assert (digest([[base]]) == digest([[changed]])) == (field.name == "weight"), field.name


def test_a_record_without_its_arrivals_is_refused_unless_loss_is_accepted(slotlab):
    first = slotlab(*RUN, *PREFIXES, TENANTS)
    (first.folder / "arrivals.parquet").unlink()
    refused = slotlab("rerun", str(first.folder))
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "it has no arrivals.parquet, so words, shared prefixes, sessions" in refused.err and "--lossy" in refused.err
    again = slotlab("rerun", str(first.folder), "--lossy")
    assert again.code == 0, again.err
    assert "served without words, shared prefixes, sessions" in again.out
    same = ["id", "scheduled_arrival", "prompt_tokens", "output_tokens", "max_tokens", "tenant", "priority"]
    pd.testing.assert_frame_equal(requests(first.folder)[same], requests(again.folder)[same])
    meta = json.loads((again.folder / "meta.json").read_text())
    assert meta["weights"] == {"a": 3.0, "b": 1.0} and "lossy" in meta["remarks"]


def test_requests_that_cannot_be_served_alone_leave_with_the_one_they_follow(slotlab):
    first = slotlab(*RUN, *SESSIONS)
    again = slotlab("rerun", str(first.folder), "workload.max_prompt=100", "record.oracle=false")
    assert again.code == 0, again.err
    assert "too_long" in again.out and requests(again.folder)["prompt_tokens"].max() <= 100


def test_words_are_kept_and_an_engine_without_words_refuses_them(slotlab, tmp_path):
    """A text prompt became random ids."""
    first = slotlab(*RUN, "load.rates=[60]")
    path = first.folder / "arrivals.parquet"
    drawn = read_arrivals(path, 0)
    write_table(arrivals_table([[replace(drawn[0], text="Hello"), *drawn[1:]]]), path)
    said = slotlab("rerun", str(first.folder))
    assert said.code == 2 and "only engine=paged serves prompts in words" in said.err


@pytest.mark.parametrize("name", ["-m", "load=a, b #%\\ \n${x}:{ünï}'\""])
def test_any_folder_that_exists_can_be_run_again(slotlab, tmp_path, name):
    """Paths were written as words of Hydra's grammar and parsed again."""
    first = slotlab(*RUN, "load.rates=[60]")
    first.folder.rename(tmp_path / name)
    again = slotlab("rerun", name, "record.oracle=false")
    assert again.code == 0, again.err
    assert (tmp_path / name / "requests.parquet").read_bytes() == (again.folder / "requests.parquet").read_bytes()
