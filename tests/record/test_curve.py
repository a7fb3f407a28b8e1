"""From repeats to points, from points to a curve, and the verdict on a point."""

import heapq

import numpy as np
import pytest

from slotlab.record.intervals import empty_share, mean_inside, most_inside
from slotlab.record.metrics import aggregate, curve_scalars, verdict


def queue(requests_of, load, n, servers, seed):
    """Requests of an M/M/c queue at this load, as a table."""
    rng = np.random.default_rng(seed)
    free = [0.0] * servers
    rows = []
    for arrival, work in zip(np.cumsum(rng.exponential(size=n)), rng.exponential(load * servers, n), strict=True):
        started = max(arrival, heapq.heappop(free))
        heapq.heappush(free, started + work)
        rows.append({"arrival": arrival, "started": started, "times": [started + work]})
    return requests_of(*rows)


@pytest.mark.parametrize("servers", [1, 16])
@pytest.mark.parametrize(("load", "expected"), [(0.5, "stable"), (0.8, "stable"), (1.3, "saturated"), (2, "saturated")])
def test_verdict_on_queues_of_known_load(requests_of, load, expected, servers):
    found = [verdict(queue(requests_of, load, 500, servers, seed)) for seed in range(10)]
    opposite = {"stable": "saturated", "saturated": "stable"}[expected]
    assert found.count(expected) >= 9
    assert opposite not in found


def test_too_little_to_say(requests_of):
    assert verdict(queue(requests_of, 2, 20, 1, 0)) == "undetermined"
    assert verdict(requests_of(*[{"times": [float(i)]} for i in range(1, 60)])) == "undetermined"  # all at once
    assert verdict(requests_of()) == "undetermined"
    assert verdict(requests_of({}, {})) == "undetermined"


def test_slots_that_only_fill_up_are_not_saturation(requests_of):
    """64 servers, 60 requests: the backlog grows all the time, but nobody has to wait."""
    found = {verdict(queue(requests_of, 0.5, 60, 64, seed)) for seed in range(10)}
    assert "saturated" not in found


def test_repeats_that_disagree_leave_it_open(requests_of):
    stable, saturated = queue(requests_of, 0.5, 300, 1, 0), queue(requests_of, 2, 300, 1, 0).assign(repeat=1)
    assert verdict(stable) == "stable"
    assert verdict(saturated) == "saturated"
    both = stable.merge(saturated, how="outer", on=list(set(stable.columns) - {"token_times"}))
    assert verdict(both) == "undetermined"


def test_a_starved_backlog_is_saturation(requests_of):
    """Half of the requests never start."""
    rows = [{"arrival": float(i), "times": [i + 2.0], "started": i + 1.0} for i in range(0, 100, 2)]
    starved = [{"arrival": float(i), "status": "aborted"} for i in range(1, 100, 2)]
    assert verdict(requests_of(*rows, *starved)) == "saturated"


def test_aggregate_gives_mean_and_extremes():
    point = aggregate([{"x": 1.0, "y": 5.0}, {"x": 2.0, "z": 1.0}, {"x": 6.0, "y": 5.0}])
    assert point == {"x": 3.0, "x_lo": 1.0, "x_hi": 6.0}


def test_aggregate_of_one_repeat_has_no_extremes():
    assert aggregate([{"x": 1.0}]) == {"x": 1.0}
    assert aggregate([]) == {}


def test_scalars_of_a_curve():
    points = [
        {"output_throughput": 10, "offered_rate": 1, "goodput": 1, "ttft_p99": 0.1, "makespan": 100},
        {"output_throughput": 20, "offered_rate": 2, "goodput": 1.9, "ttft_p99": 0.2, "makespan": 50},
        {"output_throughput": 18, "offered_rate": 4, "goodput": 0.3, "ttft_p99": 9.0, "makespan": 60},
    ]
    assert curve_scalars(points, ["stable", "stable", "saturated"], 1) == {
        "max_throughput": 20,
        "goodput_at_slo": 1.9,
        "knee_rate": 2,
        "ttft_p99_at_ref_rate": 0.2,
        "makespan": 60,
    }
    assert "knee_rate" not in curve_scalars(points, ["undetermined"] * 3, 1)


def test_a_curve_of_one_point_shows_the_point():
    point = {"makespan": 15.0, "e2e_mean": 8.5, "slot_utilisation": 0.6, "batch_efficiency": 0.6}
    assert curve_scalars([point], ["undetermined"], 0) == point
    assert curve_scalars([], [], 0) == {}


def test_counting_who_is_inside():
    entered, left = np.array([0.0, 1, 1, 5, 5]), np.array([2.0, 3, 1, 6, np.inf])
    assert mean_inside(entered, left, np.array([0.0, 2, 4, 8])) == pytest.approx([1.5, 0.5, 1])
    assert most_inside(entered, left) == 2
    assert most_inside(np.array([0.0, 2]), np.array([2.0, 3])) == 1  # who leaves at an instant makes room for who comes
    assert most_inside(np.array([]), np.array([])) == 0
    assert empty_share(entered, left, 0, 10) == pytest.approx(0.2)
    assert empty_share(np.array([]), np.array([]), 0, 10) == 1
