"""The figures of one load point."""

import fnmatch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab.record.bounds import BOUNDS, ORACLE
from slotlab.record.hardware import HARDWARE
from slotlab.record.latency import token_gaps
from slotlab.record.metrics import METRICS, SLO, aggregate, point_metrics
from slotlab.record.percentiles import PERCENTILES

LENGTHS = [6, 2, 8, 3, 5, 2, 7, 3]


def figures(requests, steps, slo=None, weights=None, slots=4):
    return point_metrics(requests, steps, max_num_seqs=slots, num_blocks=16, slo=slo or SLO(), weights=weights or {})


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        (True, {"slot_utilisation": 36 / 60, "e2e_mean": 8.5, "makespan": 15, "batch_efficiency": 36 / 60}),
        (False, {"slot_utilisation": 36 / 48, "e2e_mean": 6.5, "makespan": 12, "batch_efficiency": 1}),
    ],
)
def test_static_against_continuous(serve, static, expected):
    tables = serve(LENGTHS, static=static)
    found = figures(tables["requests"], tables["steps"])
    assert {key: found[key] for key in expected} == expected


def test_every_figure_by_hand(requests_of, no_steps):
    """Two requests, the second sent half a unit late; the first has a stall of 3 between its tokens."""
    requests = requests_of(
        {"times": [2, 3, 6], "arrival": 0, "prompt_tokens": 10, "cached_tokens": 4},
        {"times": [5, 7], "arrival": 1, "submitted": 1.5, "prompt_tokens": 20},
    )
    found = figures(requests, no_steps)
    expected = {
        "makespan": 7,
        "request_throughput": 2 / 7,
        "output_throughput": 5 / 7,
        "total_throughput": 35 / 7,
        "offered_rate": 1,
        "achieved_rate": 1 / 1.5,
        "send_lag_mean": 0.25,
        "send_lag_max": 0.5,
        "queueing_mean": (1 + 3) / 2,
        "ttft_mean": (2 + 4) / 2,
        "ttft_p90": 3.8,
        "tpot_mean": 2,
        "itl_mean": (1 + 3 + 2) / 3,
        "e2e_mean": 6,
        "concurrency_mean": 12 / 7,
        "queue_depth_mean": 4 / 7,
        "queue_depth_max": 1,
        "prefix_hit_rate": 4 / 30,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)


def test_steps_are_weighted_by_their_durations(requests_of, steps_of):
    """Prompts of 40 tokens in all; the second request is preempted, and needs 9 computed again."""
    steps = steps_of(
        {"duration": 1.0, "computing": 4, "held": 4, "running": 4, "kv_used": 8, "prefill_tokens": 40},
        {"duration": 3.0, "computing": 1, "held": 2, "running": 2, "kv_used": 4, "decode_tokens": 1, "recomputed_tokens": 9},
    ).assign(padding_tokens=[20, 30], swapped_blocks=[0, 5])
    rows = [{"times": [1], "prompt_tokens": 30}, {"times": [1, 5], "preemptions": 1, "recomputed_tokens": 9, "prompt_tokens": 10}]
    found = figures(requests_of(*rows), steps)
    expected = {
        "slot_utilisation": 7 / (4 * 5),
        "kv_utilisation": 20 / (16 * 5),
        "running_mean": 10 / 5,
        "batch_efficiency": 5 / 6,
        "step_tokens_mean": 50 / 2,
        "padding_waste": 50 / 100,
        "swapped_blocks": 5,
        "recompute_tax": 9 / 50,
    }
    assert {key: found[key] for key in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("lie", "line"),
    [
        ({"prompt_tokens": 9}, "tokens are not conserved: the steps computed 8 prefill_tokens, the requests say 16"),
        ({"output_tokens": 9}, "tokens are not conserved: the steps computed 28 decode_tokens, the requests say"),
        ({"recomputed_tokens": 3}, "tokens are not conserved: the steps computed 0 recomputed_tokens, the requests say 3"),
        ({"finish": 40.0}, "Little's law does not hold: requests were running for "),
    ],
)
def test_tables_that_contradict_each_other_are_refused(serve, lie, line):
    """inference-sim #1115, #1122: requests and tokens were lost, or counted twice."""
    tables = serve(LENGTHS)
    requests, steps = tables["requests"].copy(), tables["steps"]
    for name, value in lie.items():
        requests.loc[0, name] = value
    with pytest.raises(AssertionError, match=line):
        figures(requests, steps)
    figures(
        requests.assign(status=["aborted", *requests["status"][1:]], finish=requests["finish"].mask(requests.index == 0)), steps
    )


def test_without_requests_only_counts_are_defined(requests_of, no_steps):
    assert figures(requests_of(), no_steps) == dict.fromkeys(
        ("offered", "finished", "rejected", "aborted", "tpot_undefined", "preemptions", "swapped_blocks"), 0
    )


def test_only_rejected_requests(requests_of, no_steps):
    found = figures(requests_of({"arrival": 0.0}, {"arrival": 1.0}), no_steps, SLO(ttft=1))
    assert (found["offered"], found["rejected"], found["offered_rate"], found["goodput_fraction"]) == (2, 2, 1, 0)
    latencies = ("ttft_*", "e2e_*", "adj_*", "itl_*", "makespan", "output_throughput", "goodput", "slot_utilisation")
    assert not [key for key in found if any(fnmatch.fnmatch(key, pattern) for pattern in latencies)]


def test_a_single_token_has_no_tpot_and_is_counted(requests_of, no_steps):
    found = figures(requests_of({"times": [1]}, {"times": [1, 3]}), no_steps, SLO(tpot=2))
    assert (found["tpot_undefined"], found["tpot_mean"], found["goodput_fraction"]) == (1, 2, 1)
    alone = figures(requests_of({"times": [1]}), no_steps, SLO(tpot=0.1))
    assert "tpot_mean" not in alone
    assert "itl_mean" not in alone
    assert alone["goodput_fraction"] == 1


def test_failures_are_infinite_in_adjusted_percentiles(requests_of, no_steps):
    rows = [{"times": [float(i)]} for i in range(1, 10)]
    found = figures(requests_of(*rows, {}), no_steps)
    assert found["ttft_p99"] == pytest.approx(8.92)
    assert found["adj_ttft_p50"] == 5.5
    assert "adj_ttft_p95" not in found
    assert "adj_ttft_p50" in found


def test_goodput_counts_every_offered_request(requests_of, no_steps):
    rows = [{"times": [1, 2]}, {"times": [3, 4]}, {"times": [1, 9]}, {}]
    found = figures(requests_of(*rows), no_steps, SLO(ttft=2, e2e=5))
    assert (found["goodput_fraction"], found["goodput"]) == (1 / 4, 1 / 9)
    assert figures(requests_of(*rows), no_steps)["goodput_fraction"] == 3 / 4


def test_an_aborted_request_counts_its_tokens_and_nothing_else(requests_of, no_steps):
    cut = {"times": [1, 2, 3, 4], "status": "aborted", "finish": None}
    found = figures(requests_of({"times": [1, 2]}, cut), no_steps)
    assert (found["aborted"], found["output_throughput"], found["e2e_mean"]) == (1, 6 / 4, 2)


def test_one_stall_shows_in_itl_not_in_tpot(requests_of, no_steps):
    """GuideLLM #1145: a mean per request hides it."""
    times = [*np.arange(1.0, 11.0), *np.arange(110.0, 120.0)]
    requests = requests_of({"times": times})
    assert token_gaps(requests).max() == 100
    found = figures(requests, no_steps)
    assert found["tpot_p99"] < 7 < found["itl_p99"]


@pytest.mark.parametrize(
    "broken", [{"started": 3.0}, {"started": -1.0}, {"finish": 1.0}, {"started": None}, {"first_token": None}]
)
def test_an_impossible_record_is_named(requests_of, no_steps, broken):
    with pytest.raises(AssertionError, match=r"request 1 \(point 0, repeat 0, finished\): 0 <= queueing <= ttft <= e2e"):
        figures(requests_of({"times": [1, 2]}, {"times": [2, 3], **broken}), no_steps)


def test_every_key_has_a_definition(serve):
    tables = serve(LENGTHS, tenant=["a", "b"] * 4, arrivals=[0.0] * 7 + [1.0])
    found = figures(tables["requests"], tables["steps"])
    undefined = [key for key in aggregate([found, found]) if not any(fnmatch.fnmatch(key, name) for name in METRICS)]
    assert undefined == []
    elsewhere = {
        *BOUNDS,
        *HARDWARE,
        *ORACLE,
        "repeats",
        "ended_early",
        "max_throughput",
        "goodput_at_slo",
        "knee_rate",
        "ttft_p99_at_ref_rate",
    }
    assert {name for name in METRICS if not fnmatch.filter(aggregate([found, found]), name)} == elsewhere


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5), st.booleans())
def test_what_always_holds(serve, data, slots, static):
    n = data.draw(st.integers(1, 25))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    arrivals = sorted(data.draw(st.lists(st.integers(0, 40).map(float), min_size=n, max_size=n)))
    tables = serve(lengths, arrivals, slots, static, tenant=["ab"[i % 2] for i in range(n)])
    requests, steps = tables["requests"], tables["steps"]
    found = figures(requests, steps, slots=slots)
    span = found["makespan"]
    assert found["output_throughput"] * span == pytest.approx(sum(lengths))
    assert found["request_throughput"] * span == pytest.approx(n)
    assert found["slot_utilisation"] * span * slots == pytest.approx(sum(lengths))
    assert 0 < found["slot_utilisation"] <= found["batch_efficiency"] + 1e-9 <= 1 + 2e-9
    assert found["queueing_mean"] < found["ttft_mean"] <= found["e2e_mean"]
    assert 0 < found.get("jain_index", 1) <= 1 + 1e-9
    for name in ("queueing", "ttft", "itl", "e2e"):
        tail = [found[f"{name}_p{percent}"] for percent in PERCENTILES if f"{name}_p{percent}" in found]
        assert tail == sorted(tail)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5))
def test_littles_law(serve, data, slots):
    """Time-average number in the system = arrival rate x mean time in it, as the window is closed; so too in the queue."""
    n = data.draw(st.integers(1, 25))
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    arrivals = sorted(data.draw(st.lists(st.integers(0, 160).map(lambda t: t / 4), min_size=n, max_size=n)))
    tables = serve(lengths, arrivals, slots)
    found = figures(tables["requests"], tables["steps"], slots=slots)
    rate = n / found["makespan"]
    assert found["concurrency_mean"] == pytest.approx(rate * found["e2e_mean"])
    assert found["queue_depth_mean"] == pytest.approx(rate * found["queueing_mean"])
