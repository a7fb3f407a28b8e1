"""Percentiles and their bounds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotlab.record.percentiles import PERCENTILES, binomial, percentile, percentile_bounds, summary

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys_linear_ones(values, percent):
    ordered = np.sort(values)
    assert percentile(ordered, percent) == pytest.approx(float(np.percentile(ordered, percent)), abs=1e-6)


@given(st.lists(st.one_of(finite, st.just(math.inf)), min_size=1))
def test_percentiles_grow_with_the_percentage_and_stay_in_range(values):
    ordered = np.sort(values)
    found = [percentile(ordered, percent) for percent in PERCENTILES]
    assert found == sorted(found)
    assert ordered[0] <= found[0]
    assert found[-1] <= ordered[-1]


def test_an_infinite_value_reaches_only_the_percentiles_that_touch_it():
    ordered = np.array([1.0, 2.0, 3.0, math.inf])
    assert percentile(ordered, 50) == 2.5
    assert percentile(ordered, 99) == math.inf


def test_summary_of_nothing_is_nothing():
    assert summary("ttft", np.empty(0)) == {}


@pytest.mark.parametrize(
    ("n", "ranks"),
    [(10, (9, math.inf)), (300, (293, math.inf)), (368, (360, 368)), (1000, (983, 997))],
)
def test_binomial_bounds_of_p99(n, ranks):
    """The ranks that scipy.stats.binom.ppf gives, in values that are their own ranks."""
    assert percentile_bounds(np.arange(1.0, n + 1), 99) == ranks


def test_binomial_bounds_of_too_few_values_are_open():
    assert percentile_bounds(np.arange(5.0), 50) == (-math.inf, math.inf)
    assert percentile_bounds(np.empty(0), 99) == (-math.inf, math.inf)


def test_binomial_bounds_cover_the_true_percentile():
    rng = np.random.default_rng(1)
    bounds = [percentile_bounds(np.sort(rng.exponential(size=200)), 90) for _ in range(1000)]
    covered = np.mean([low <= math.log(10) <= high for low, high in bounds])
    assert 0.94 <= covered <= 0.99


def test_binomial_probabilities():
    assert binomial(3, 0.5) == pytest.approx([1 / 8, 3 / 8, 3 / 8, 1 / 8])
    assert binomial(100_000, 0.99).sum() == pytest.approx(1)
