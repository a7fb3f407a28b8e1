"""Loads that look before they choose: where they put their points, when they have enough repeats, what they refuse."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slotlab import UserError
from slotlab_plugins.loads.chosen import Auto, UntilCI, spread
from slotlab_plugins.loads.swept import Concurrencies, Rates


class Known:
    """An engine whose figures are known."""

    def capacity(self) -> float:
        return 8.0

    def knee(self, accuracy: float, max_requests: int) -> float:
        return 10.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Auto(num_points=0), "num_points=0: must be at least 1 and at most 1000"),
        (lambda: Auto(low=1.5), "low=1.5: must be greater than 0, at most 1"),
        (lambda: Auto(high=0.5), "high=0.5: must be at least 1 and at most 1e+06"),
        (lambda: Auto(accuracy=0.0), "accuracy=0.0: must be greater than 0, below 1"),
        (lambda: Auto(max_requests=0), "max_requests=0: must be at least 1 and at most 10000000"),
        (lambda: UntilCI(repeats=2), "repeats=2: must be at least 3, for an interval"),
        (lambda: UntilCI(repeats=5, max_repeats=4), "max_repeats=4: must be at least repeats=5 and at most 1000"),
        (lambda: UntilCI(width=0.0), "width=0.0: must be greater than 0 and at most 1e+06"),
        (lambda: UntilCI(rates=[]), "rates=[]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: UntilCI(multiples=[]), "multiples=[]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: Rates(max_seconds=0.0), "max_seconds=0.0: must be greater than 0 and at most 1e+09, or null"),
        (lambda: Rates(ref_rate=-1.0), "ref_rate=-1.0: must be greater than 0 and at most 1e+09, or null"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


def test_points_lie_from_low_to_high_and_closest_around_the_knee():
    rates = [point.rate for point in Auto(num_points=7, low=0.3, high=1.4).points(Known())]
    assert (rates[0], rates[3], rates[-1]) == (pytest.approx(3.0), pytest.approx(10.0), pytest.approx(14.0))
    gaps = [b - a for a, b in pairwise(rates)]
    assert gaps[0] > gaps[1] > gaps[2] > 0 and 0 < gaps[3] < gaps[4] < gaps[5]


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_any_number_of_points_is_sorted(n):
    multiples = spread(n, 0.5, 1.5)
    assert len(multiples) == n and multiples == sorted(multiples)
    assert spread(1, 0.5, 1.5) == [1.0]


def figures(*values: float) -> list[dict[str, float]]:
    return [{"ttft_mean": value} for value in values]


def test_repeats_go_on_until_the_interval_is_narrow_enough():
    load = UntilCI(width=0.1, max_repeats=5)
    assert not load.enough(figures(1.0, 1.0)), "fewer than the least"
    assert load.enough(figures(1.0, 1.0, 1.0))
    assert not load.enough(figures(1.0, 2.0, 3.0))
    assert load.enough(figures(1.0, 2.0, 3.0, 2.0, 1.0)), "the cap"
    wide = [1.0, 1.1, 0.9]  # t = 4.303: half the interval is 25 % of the mean
    assert not load.enough(figures(*wide)) and UntilCI(width=0.25).enough(figures(*wide))


def test_a_mean_that_stays_uncertain_is_said_to_be():
    load = UntilCI(width=0.1, max_repeats=3)
    assert load.remark(figures(1.0, 1.1, 0.9)) == "ttft_mean is known to 24.8% only, after 3 repeats"
    assert load.remark(figures(1.0, 1.0, 1.0)) is None


def test_an_unknown_metric_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"load\.metric=ttft_men: must be a figure of every point; did you mean ttft_mean\?"):
        UntilCI(metric="ttft_men").enough(figures(1.0, 1.0, 1.0))


def test_rates_win_over_multiples_of_the_capacity():
    assert [point.rate for point in UntilCI(rates=[4.0, 2.0]).points(Known())] == [2.0, 4.0]
    assert [point.rate for point in UntilCI(multiples=[0.5]).points(Known())] == [4.0]


def test_the_point_that_stands_for_the_curve_is_the_middle_one_or_the_nearest_to_a_rate():
    load = Rates(rates=[1.0, 2.0, 4.0])
    points = load.points(Known())
    assert load.ref_index(points) == 1
    assert [Rates(ref_rate=rate).ref_index(points) for rate in (0.1, 1.9, 3.5)] == [0, 1, 2]
    clients = Concurrencies(ref_rate=1.0)
    with pytest.raises(UserError, match=r"load\.ref_rate=1\.0: must be null, for this load has no rates"):
        clients.ref_index(clients.points(Known()))
