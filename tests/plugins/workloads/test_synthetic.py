"""Tenants, shared prefixes and sessions; and that none of their streams moves another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from slotlab import Streams, UserError
from slotlab.workload import digest
from slotlab_plugins.laws.arrivals import Arrivals
from slotlab_plugins.laws.lengths import Lengths
from slotlab_plugins.laws.links import Prefixes, Sessions
from slotlab_plugins.laws.tenants import TenantTraffic
from slotlab_plugins.workloads.synthetic import Synthetic


def draw(seed=0, repeat=0, **options):
    return list(Synthetic(**options).draw(Streams(seed, repeat)))


def column(rows, name):
    return [getattr(row, name) for row in rows]


def test_a_tenant_may_have_lengths_of_its_own_and_moves_nobody_elses():
    tenants = [TenantTraffic("a"), TenantTraffic("b")]
    plain = draw(requests=500, tenants=tenants)
    own = draw(requests=500, tenants=[tenants[0], TenantTraffic("b", prompt=Lengths("fixed", mean=9))])
    assert {row.prompt_tokens for row in own if row.tenant == "b"} == {9}
    assert [row for row in own if row.tenant == "a"] == [row for row in plain if row.tenant == "a"]
    assert column(own, "output_tokens") == column(plain, "output_tokens")


def test_priority_deadline_and_weight_travel_with_the_tenant():
    tenants = [TenantTraffic("chat", weight=2.0, priority=-1, deadline=0.5), TenantTraffic("batch", share=3.0)]
    rows = draw(requests=4000, tenants=tenants)
    kinds = Counter((row.tenant, row.priority, row.deadline, row.weight) for row in rows)
    assert set(kinds) == {("chat", -1, 0.5, 2.0), ("batch", 0, None, 1.0)}
    assert kinds["chat", -1, 0.5, 2.0] / 4000 == pytest.approx(0.25, abs=0.03)


def test_a_tenant_with_arrivals_of_its_own_keeps_its_share_of_the_rate():
    bursty = TenantTraffic("bursty", share=1.0, arrivals=Arrivals(profile="on_off", period=400.0, duty=0.1))
    rows = draw(requests=20_000, tenants=[TenantTraffic("smooth", share=3.0), bursty])
    times = np.array(column(rows, "time"))
    assert np.all(np.diff(times) >= 0) and len(rows) == 20_000
    assert len(rows) / times[-1] == pytest.approx(1.0, abs=0.03)
    mine = times[[row.tenant == "bursty" for row in rows]]
    assert len(mine) / len(rows) == pytest.approx(0.25, abs=0.02)
    assert np.all((mine / 400.0) % 1 <= 0.1 + 1e-9), "it is off for nine tenths of the time"


def test_the_arrivals_of_one_tenant_move_those_of_no_other():
    def smooth(cv):
        other = TenantTraffic("other", arrivals=Arrivals("gamma", cv=cv))
        rows = draw(requests=2000, tenants=[TenantTraffic("smooth", arrivals=Arrivals()), other])
        return [row.time for row in rows if row.tenant == "smooth"]

    few, many = sorted((smooth(1.0), smooth(4.0)), key=len)
    assert many[: len(few)] == few


def test_a_prefix_group_has_one_length_and_its_share_of_the_requests():
    prefixes = Prefixes(groups=4, tokens=Lengths("uniform", low=100, high=900), exponent=1.0)
    rows, plain = draw(requests=8000, prefixes=prefixes), draw(requests=8000)
    sizes = {row.prefix_group: row.prefix_tokens for row in rows}
    assert len(sizes) == 4 and len(set(sizes.values())) > 1
    assert all(row.prefix_tokens == sizes[row.prefix_group] for row in rows)
    assert [row.prompt_tokens - row.prefix_tokens for row in rows] == column(plain, "prompt_tokens")
    counts = Counter(column(rows, "prefix_group"))
    assert [counts[group] / 8000 for group in range(4)] == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25], abs=0.02)
    assert {(row.prefix_group, row.prefix_tokens) for row in plain} == {(None, 0)}


def test_each_turn_of_a_session_contains_the_turns_before():
    rows = draw(requests=3000, sessions=Sessions(turns=4.0, think=2.0), prefixes=Prefixes(groups=2))
    assert len(rows) == 3000
    followers = [(before, row) for before, row in pairwise(rows) if row.follows is not None]
    for index, row in enumerate(rows):
        assert row.follows in (None, index - 1)
    for before, row in followers:
        assert row.prompt_tokens > before.prompt_tokens + before.output_tokens
        assert (row.time, row.tenant) == (before.time, before.tenant)
        assert row.prefix_group is None, "it is in the prompt of the first turn"
    openers = [row for row in rows if row.follows is None]
    assert {row.think for row in openers} == {0.0} and {row.prefix_group for row in openers} == {0, 1}
    assert np.mean([row.think for _, row in followers]) == pytest.approx(2.0, rel=0.1)
    assert len(rows) / len(openers) == pytest.approx(4.0, rel=0.1)
    assert len(rows) / rows[-1].time == pytest.approx(1.0, rel=0.15), "requests, not sessions, come at the load's rate"


def test_what_is_not_asked_for_moves_no_stream():
    plain = draw(requests=200)
    linked = draw(requests=200, sessions=Sessions(turns=1.0, think=9.0), prefixes=Prefixes(groups=0))
    assert linked == plain


def test_repeats_do_not_depend_on_how_many_there_are():
    options = {"sessions": Sessions(turns=2.0), "prefixes": Prefixes(groups=3), "arrivals": Arrivals("weibull", cv=3.0)}
    assert draw(repeat=1, **options) == draw(repeat=1, **options)
    assert digest([draw(repeat=0, **options)]) != digest([draw(repeat=1, **options)])


def test_the_digest_sees_prefixes_sessions_and_deadlines():
    options = [
        {},
        {"tenants": [TenantTraffic(deadline=1.0)]},
        {"prefixes": Prefixes(groups=2)},
        {"prefixes": Prefixes(groups=3)},
        {"sessions": Sessions(turns=2.0)},
        {"sessions": Sessions(turns=2.0, think=1.0)},
        {"arrivals": Arrivals("constant")},
    ]
    assert len({digest([draw(**some)]) for some in options}) == len(options)


CODE = """
from slotlab import Streams
from slotlab.workload import digest
from slotlab_plugins.laws.arrivals import Arrivals
from slotlab_plugins.laws.links import Prefixes, Sessions
from slotlab_plugins.laws.tenants import TenantTraffic
from slotlab_plugins.workloads.synthetic import Synthetic

tenants = [TenantTraffic(name, arrivals=Arrivals("gamma", cv=2.0) if name in "ab" else None) for name in "abcd"]
workload = Synthetic(tenants=tenants, prefixes=Prefixes(groups=5), sessions=Sessions(turns=3.0, think=1.0))
print(digest(workload.draw(Streams(0, repeat)) for repeat in range(2)))
"""


def test_the_digest_does_not_depend_on_the_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "4242")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prefixes(groups=-1), "groups=-1: must be at least 0 and at most 1000000"),
        (lambda: Prefixes(exponent=-1.0), "exponent=-1.0: must be at least 0 and at most 20"),
        (lambda: Sessions(turns=0.5), "turns=0.5: must be at least 1 and at most 1e+06"),
        (lambda: Sessions(think=-1.0), "think=-1.0: must be at least 0 and at most 1e+07"),
        (lambda: Synthetic(max_tokens=0), "max_tokens=0: must be at least 1 and at most 1000000000"),
        (
            lambda: Synthetic(tenants=[TenantTraffic(deadline=0.0)]),
            "tenants[default].deadline=0.0: must be greater than 0 and at most 1e+09",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize(
    "words",
    [
        ("workload=gamma", "workload.arrivals.cv=2"),
        ("workload=stages", "workload.arrivals.period=20"),
        (
            "workload.tenants=[{name:a,deadline:2},{name:b,prompt:{law:fixed,mean:9},arrivals:{law:gamma,cv:4}}]",
            "workload.sessions={turns:3,think:0.1}",
        ),
        ("load=concurrencies", "load.concurrencies=[4]", "load.think=0.5"),
    ],
)
def test_the_command_line_takes_it(slotlab, words):
    said = slotlab("engine=simulated", *(() if "load=concurrencies" in words else ("load.rates=[20]",)), *words)
    assert said.code == 0, said.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["workload.arrivals.law=gama"], "workload.arrivals.law=gama: must be one of poisson, gamma, weibull, constant"),
        (["workload.tenants=[{name:a,prompt:{low:0}}]"], "workload.tenants[0].prompt.low=0: must be from 1 to high=512"),
        (["workload.pairs=nowhere.csv"], "workload.pairs=nowhere.csv: no such file"),
        (["load=concurrencies", "load.think=-1"], "load.think=-1.0: must be at least 0 and at most 1e+09"),
    ],
)
def test_bad_input_gets_one_line(slotlab, words, line):
    said = slotlab("engine=simulated", *words)
    assert (said.code, said.err) == (2, f"slotlab: {line}\n")
