"""Workloads draw what they say, and each random stream is on its own."""

from __future__ import annotations

import numpy as np
import pytest

from slotlab import Point, Streams, UserError
from slotlab.workload import digest
from slotlab_plugins.laws.lengths import Lengths
from slotlab_plugins.laws.tenants import TenantTraffic
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.workloads.explicit import Explicit
from slotlab_plugins.workloads.synthetic import Synthetic


def columns(workload, seed=0, repeat=0):
    rows = list(workload.draw(Streams(seed, repeat)))
    return {
        name: [getattr(row, name) for row in rows] for name in ("time", "prompt_tokens", "output_tokens", "tenant", "priority")
    }


def test_changing_the_tenants_moves_no_other_stream():
    alone = columns(Synthetic())
    shared = columns(Synthetic(tenants=[TenantTraffic("a", 1.0, priority=2), TenantTraffic("b", 5.0)]))
    for name in ("time", "prompt_tokens", "output_tokens"):
        assert shared[name] == alone[name]
    assert set(shared["tenant"]) == {"a", "b"}
    assert {p for t, p in zip(shared["tenant"], shared["priority"], strict=True) if t == "a"} == {2}


def test_changing_one_length_moves_no_other_stream():
    usual = columns(Synthetic())
    longer = columns(Synthetic(output=Lengths(mean=100.0)))
    assert (longer["time"], longer["prompt_tokens"]) == (usual["time"], usual["prompt_tokens"])
    assert longer["output_tokens"] != usual["output_tokens"]


def test_a_larger_workload_begins_as_the_smaller_one():
    small, large = columns(Synthetic(requests=20)), columns(Synthetic(requests=50))
    assert {name: values[:20] for name, values in large.items()} == small


def test_repeats_and_seeds_differ_and_each_is_always_the_same():
    drawn = [columns(Synthetic(), seed, repeat)["time"] for seed in (0, 1) for repeat in (0, 1)]
    assert len(set(map(tuple, drawn))) == 4
    assert drawn == [columns(Synthetic(), seed, repeat)["time"] for seed in (0, 1) for repeat in (0, 1)]


def test_a_policy_cannot_change_the_requests(run):
    """Serving them draws nothing from the workload's streams, and leaves nothing behind."""
    asked = []
    for policy in (FCFS(), VTC(), SJF()):
        recorder = run(list(Synthetic(requests=40).draw(Streams(3))), policy, slots=4, point=Point(rate=0.5))
        asked.append([(req.arrival, req.prompt_tokens, req.max_tokens, req.emitted) for req in recorder.states])
    assert asked[0] == asked[1] == asked[2]


def test_streams_are_the_same_on_every_machine():
    assert Streams(0).number("arrivals") == 0xF18AE9A0A2D1D736
    assert Streams(3, 1)("outputs").integers(1000, size=4).tolist() == [572, 820, 744, 258]


def test_poisson_arrivals_have_unit_mean_gaps():
    times = np.array(columns(Synthetic(requests=4000))["time"])
    gaps = np.diff(times, prepend=0.0)
    assert gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1.0, abs=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


def test_lengths_have_their_mean_and_their_limits():
    rng = Streams(0)("lengths")
    free = Lengths(mean=64.0, sigma=0.7, high=10**6).draw(rng, 20_000)
    assert np.mean(free) == pytest.approx(64.0, rel=0.03)
    assert np.std(np.log(free)) == pytest.approx(0.7, rel=0.05)
    clipped = Lengths(mean=64.0, low=50, high=70).draw(rng, 1000)
    assert (min(clipped), max(clipped)) == (50, 70)
    assert Lengths("fixed", 9.0).draw(rng, 3) == [9, 9, 9]


def test_shares_are_kept_and_weights_travel_with_the_tenant():
    rows = list(Synthetic(requests=6000, tenants=[TenantTraffic("a", 3.0, weight=2.0), TenantTraffic("b", 1.0)]).draw(Streams(0)))
    assert np.mean([row.tenant == "a" for row in rows]) == pytest.approx(0.75, abs=0.02)
    assert {(row.tenant, row.weight) for row in rows} == {("a", 2.0), ("b", 1.0)}


def test_the_cap_tells_nothing_about_the_length():
    rows = list(Synthetic(requests=300, max_tokens=40).draw(Streams(0)))
    assert {row.max_tokens for row in rows} == {40}
    assert len({row.output_tokens for row in rows}) > 10
    assert max(row.output_tokens for row in rows) == 40
    assert {row.max_tokens for row in Explicit([3, 9, 5]).draw(Streams(0))} == {9}


def test_explicit_requests_are_what_is_written():
    workload = Explicit([3, 9], arrivals=[0.5, 2.0], prompts=[7, 8], tenants=["x", "y"], priorities=[1, 0], max_tokens=6)
    rows = [
        (row.time, row.prompt_tokens, row.max_tokens, row.output_tokens, row.tenant, row.priority)
        for row in workload.draw(Streams(0))
    ]
    assert rows == [(0.5, 7, 6, 3, "x", 1), (2.0, 8, 6, 6, "y", 0)]
    assert [(row.time, row.prompt_tokens) for row in Explicit([1, 1]).draw(Streams(9))] == [(0.0, 1), (0.0, 1)]


def test_the_digest_tells_workloads_apart_but_not_weights():
    def of(**options):
        return digest([Synthetic(**options).draw(Streams(0, repeat)) for repeat in range(2)])

    assert of() == of()
    assert of() == of(tenants=[TenantTraffic(weight=5.0)])
    assert len({of(), of(requests=63), of(max_tokens=200), of(tenants=[TenantTraffic("x")])}) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Explicit([]), "lengths=[]: must be one or more (the workload would be empty)"),
        (lambda: Explicit([1, 0]), "lengths=0: must be at least 1 and at most 1000000000"),
        (lambda: Explicit([1, 1], arrivals=[1.0]), "arrivals=1 values: must be 2, one for each of lengths"),
        (lambda: Explicit([1, 1], arrivals=[2.0, 1.0]), "arrivals=[2.0, 1.0]: must be in the order of time"),
        (lambda: Explicit([1], arrivals=[-1.0]), "arrivals=-1.0: must be at least 0 and at most 1000000000"),
        (lambda: Explicit([1], max_tokens=0), "max_tokens=0: must be at least 1 and at most 1000000000"),
        (lambda: Synthetic(requests=0), "requests=0: must be at least 1 (the workload would be empty) and at most 10000000"),
        (lambda: Synthetic(tenants=[]), "tenants=[]: must be one or more, with names of their own"),
        (
            lambda: Synthetic(tenants=[TenantTraffic("a"), TenantTraffic("a")]),
            "tenants=['a', 'a']: must be one or more, with names of their own",
        ),
        (
            lambda: Synthetic(tenants=[TenantTraffic("a", share=0.0)]),
            "tenants[a].share=0.0: must be greater than 0 and at most 1e+09",
        ),
        (
            lambda: Synthetic(tenants=[TenantTraffic("a", weight=-1.0)]),
            "tenants[a].weight=-1.0: must be greater than 0 and at most 1e+09",
        ),
        (lambda: Lengths("normal"), "law=normal: must be one of lognormal, fixed, uniform, zipf, quantiles"),
        (lambda: Lengths(low=9, high=3), "low=9: must be from 1 to high=3"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message
