"""Paired comparisons."""

import heapq
import math

import numpy as np
import pytest

from slotlab.errors import UserError
from slotlab.record.means import student
from slotlab.record.statistics import Interval, compare, describe, paired_bootstrap


def walk(rng, n, memory):
    """An autoregressive series with mean 0, from its stationary distribution on."""
    noise = rng.normal(size=n + 200)
    series = np.zeros(n + 200)
    for i in range(1, n + 200):
        series[i] = memory * series[i - 1] + noise[i]
    return series[200:]


@pytest.mark.parametrize(("memory", "least"), [(0.0, 0.9), (0.8, 0.86)])
def test_the_interval_covers_the_true_difference(memory, least):
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(100):
        a = rng.exponential(size=400)
        interval = paired_bootstrap(a, a + 0.5 + walk(rng, 400, memory), seed=trial, resamples=200)
        hits += interval.low <= 0.5 <= interval.high
    assert least <= hits / 100 <= 0.99


def test_single_pairs_would_be_far_too_sure_of_a_queue():
    rng = np.random.default_rng(0)
    a = np.zeros(500)
    hits = 0
    for trial in range(100):
        interval = paired_bootstrap(a, walk(rng, 500, 0.8), block=1, seed=trial, resamples=200)
        hits += interval.low <= 0 <= interval.high
    assert hits < 65


def test_equal_seeds_give_equal_intervals():
    a, b = np.random.default_rng(0).exponential(size=(2, 100))
    first = paired_bootstrap(a, b, seed=3)
    assert first == paired_bootstrap(a, b, seed=3)
    assert first != paired_bootstrap(a, b, seed=4)
    assert first.low < first.difference < first.high


def test_the_difference_of_any_statistic():
    a = np.random.default_rng(0).exponential(size=400)

    def p90(values):
        return np.percentile(values, 90, axis=-1)

    interval = paired_bootstrap(a, 2 * a, statistic=p90, resamples=200)
    assert interval.difference == pytest.approx(p90(a))
    assert interval.low < interval.difference < interval.high


def test_nothing_is_said_about_a_handful_of_pairs():
    found = paired_bootstrap(np.zeros(5), np.ones(5))
    assert found == Interval(1.0, -math.inf, math.inf)
    assert describe(found) == "no difference"
    one_per_stream = paired_bootstrap(np.zeros(20), np.ones(20), streams=range(20))
    assert describe(one_per_stream) == "no difference"  # a stream of one pair cannot vary
    with pytest.raises(UserError, match="nothing to compare"):
        paired_bootstrap(np.empty(0), np.empty(0))


def test_resampling_stays_within_streams():
    """Two streams that differ by 1,000: mixing them would widen the interval a hundredfold."""
    difference = np.r_[np.zeros(200), np.full(200, 1000.0)] + walk(np.random.default_rng(0), 400, 0)
    streams = np.repeat([0, 1], 200)
    within = paired_bootstrap(np.zeros(400), difference, streams=streams)
    mixed = paired_bootstrap(np.zeros(400), difference)
    assert within.high - within.low < 0.5
    assert mixed.high - mixed.low > 100
    with pytest.raises(AssertionError, match="must stand together"):
        paired_bootstrap(np.zeros(4), np.zeros(4), streams=[0, 1, 0, 1])


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [((-2, -3, -1), "won"), ((2, 1, 3), "lost"), ((-2, -5, 1), "no difference"), ((0, 0, 0), "no difference")],
)
def test_outcomes(interval, outcome):
    assert describe(Interval(*interval)) == outcome


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.5706), (9, 2.2622), (30, 2.0423), (1e9, 1.95996)])
def test_students_t(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, rel=3e-3)


def single_server(requests_of, shortest_first, n=300, repeats=2):
    """Requests of a queue with one server at 80 % load, first come first served or shortest first."""
    rows = []
    for point in (0, 1):
        for repeat in range(repeats):
            rng = np.random.default_rng((point, repeat))
            arrivals, work = np.cumsum(rng.exponential(size=n)), rng.integers(1, 3, n) * 0.53
            now, waiting, i = 0.0, [], 0
            while len(waiting) or i < n:
                now = max(now, arrivals[i]) if not waiting else now
                while i < n and arrivals[i] <= now:
                    heapq.heappush(waiting, (work[i] if shortest_first else 0, i))
                    i += 1
                id = heapq.heappop(waiting)[1]
                place = {"point": point, "repeat": repeat, "id": id, "arrival": arrivals[id], "prompt_tokens": id}
                rows.append({**place, "started": now, "times": [now + work[id]]})
                now += work[id]
    return requests_of(*rows)


def test_a_better_policy_wins_and_the_same_one_does_not(requests_of):
    fcfs, sjf = single_server(requests_of, False), single_server(requests_of, True)
    found = compare(fcfs, sjf, resamples=200)
    assert (found.pairs, found.only_a, found.only_b, found.neither) == (1200, 0, 0, 0)
    assert set(found.points) == {0, 1}
    assert {describe(found.overall[name]) for name in ("ttft", "e2e")} == {"won"}
    assert describe(compare(sjf, fcfs, resamples=200).overall["e2e"]) == "lost"
    mean = (sjf["finish"] - sjf["scheduled_arrival"]).mean() - (fcfs["finish"] - fcfs["scheduled_arrival"]).mean()
    assert found.overall["e2e"].difference == pytest.approx(mean)
    same = compare(fcfs, fcfs.sample(frac=1, random_state=0), resamples=200)
    assert same.overall["ttft"] == Interval(0, 0, 0)


def test_pairs_are_those_that_finished_in_both(requests_of):
    done, failed = {"times": [2.0]}, {"status": "aborted"}
    a = requests_of(done, done, failed, failed, done)
    b = requests_of(done, failed, done, failed, {"times": [5.0]})
    found = compare(a, b, resamples=10)
    assert (found.pairs, found.only_a, found.only_b, found.neither) == (2, 1, 1, 1)
    assert found.overall["e2e"].difference == 1.5


def test_other_workloads_are_refused(requests_of):
    a = requests_of({"times": [2.0]}, {"times": [3.0]})
    with pytest.raises(UserError, match="runs of 2 and 1 requests share 1"):
        compare(a, a[:1])
    with pytest.raises(UserError, match="prompt_tokens=1 in one run and 9 in the other"):
        compare(a, a.assign(prompt_tokens=[1, 9]))
    with pytest.raises(UserError, match="nothing to compare"):
        compare(requests_of({}), requests_of({}))
