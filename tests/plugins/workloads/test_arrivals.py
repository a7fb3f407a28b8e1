"""Arrival processes have the mean, the spread, the dispersion and the law that theory gives them; all at unit mean rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from slotlab import Streams, UserError
from slotlab_plugins.laws.arrivals import Arrivals, Stage, weibull_shape

N = 100_000
STAGES = [Stage(2.0, 1.0), Stage(1.0, 4.0), Stage(1.0, 0.0)]
RENEWAL = {
    "poisson": (Arrivals(), 1.0, stats.expon()),
    "gamma": (Arrivals("gamma", cv=2.5), 2.5, stats.gamma(1 / 6.25, scale=6.25)),
    "even gamma": (Arrivals("gamma", cv=0.4), 0.4, stats.gamma(6.25, scale=0.16)),
    "weibull": (
        Arrivals("weibull", cv=2.0),
        2.0,
        stats.weibull_min(weibull_shape(2.0), scale=1 / math.gamma(1 + 1 / weibull_shape(2.0))),
    ),
}
PROFILES = {
    "on_off": Arrivals(profile="on_off", period=50.0, duty=0.2),
    "ramp": Arrivals(profile="ramp", swing=0.8),
    "falling ramp": Arrivals(profile="ramp", swing=-0.8),
    "ramp from zero": Arrivals(profile="ramp", swing=1.0),
    "stages": Arrivals(profile="stages", period=80.0, stages=STAGES),
    "diurnal": Arrivals(profile="diurnal", period=500.0, swing=0.9),
}


def times(arrivals, n=N, rate=1.0, seed=0):
    return arrivals.draw(Streams(seed)("arrivals"), n, n / rate, rate)


def dispersion(times, width):
    """Variance over mean of the counts in windows of this width."""
    counts = np.bincount((times / width).astype(int))[:-1]
    return counts.var() / counts.mean()


@pytest.mark.parametrize("name", RENEWAL)
def test_gaps_have_the_mean_the_spread_and_the_law_of_theory(name):
    process, cv, law = RENEWAL[name]
    gaps = process.gaps(Streams(0)("arrivals"), N)
    assert np.allclose(np.cumsum(gaps), times(process)) and gaps.min() >= 0
    assert gaps.mean() == pytest.approx(1.0, abs=4 * cv / math.sqrt(N))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.04)
    assert stats.kstest(gaps, law.cdf).pvalue > 0.01


@pytest.mark.parametrize("name", RENEWAL)
def test_gaps_are_independent(name):
    gaps = np.diff(times(RENEWAL[name][0]))
    ranks = stats.rankdata(gaps)
    assert abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) < 4 / math.sqrt(N)


@pytest.mark.parametrize("name", RENEWAL)
def test_counts_in_long_windows_disperse_as_the_squared_spread_of_the_gaps(name):
    """The index of dispersion of a renewal process goes to cv ** 2 (Cox, 1962)."""
    process, cv, _ = RENEWAL[name]
    assert dispersion(times(process), 200.0) == pytest.approx(cv**2, rel=0.2)


def test_poisson_counts_disperse_as_their_mean_at_every_scale():
    drawn = times(Arrivals())
    for width in (0.5, 1.0, 10.0, 100.0):
        assert dispersion(drawn, width) == pytest.approx(1.0, abs=4 * math.sqrt(2 * width / N))


def test_constant_arrivals_are_a_beat():
    assert times(Arrivals("constant"), 4, rate=2.0).tolist() == [0.5, 1.0, 1.5, 2.0]


def test_arrivals_are_never_stretched_to_end_at_n_over_rate():
    """vLLM's benchmark rescales the gaps: counts in the first half then have half the variance (measurement.md, note a)."""
    ends, halves = [], []
    for seed in range(2000):
        drawn = times(Arrivals(), 200, seed=seed)
        ends.append(drawn[-1])
        halves.append(np.sum(drawn < 100.0))
    assert np.var(ends) / np.mean(ends) == pytest.approx(1.0, abs=0.15)
    assert np.var(halves) / np.mean(halves) == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_unit_mean_rate(name):
    drawn = times(PROFILES[name])
    assert np.all(np.diff(drawn) >= 0)
    assert N / drawn[-1] == pytest.approx(1.0, abs=4 / math.sqrt(N) + 500 / N)


@pytest.mark.parametrize("name", PROFILES)
def test_the_rate_divides_but_a_period_stays_what_it_is(name):
    process = PROFILES[name]
    slow = times(process, 5000, rate=0.5)
    assert slow[-1] == pytest.approx(10_000, rel=0.2)  # a falling ramp ends slowly, so its end is spread most
    assert process.period is None or process.period < slow[-1]


def shape(name, t):
    """The rate at times `t`, in periods."""
    t = t % 1
    if name == "on_off":
        return np.where(t < 0.2, 5.0, 0.0)
    if name == "stages":
        return np.select([t < 0.5, t < 0.75], [2 / 3, 8 / 3], 0.0)
    if name == "diurnal":
        return 1 + 0.9 * np.sin(2 * np.pi * t)
    swing = {"ramp": 0.8, "falling ramp": -0.8, "ramp from zero": 1.0}[name]
    return 1 + swing * (2 * t - 1)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_has_the_rate_that_it_says_at_every_time(name):
    """Within a period, times are distributed as the integral of the rate; tested against a fine sum."""
    process = PROFILES[name]
    period = process.period or float(N)
    drawn = times(process)
    within = (drawn[drawn < period * (drawn[-1] // period or 1)] / period) % 1
    grid = np.linspace(0.0, 1.0, 20_001)
    sums = np.concatenate([[0.0], np.cumsum(shape(name, (grid[1:] + grid[:-1]) / 2))])
    assert stats.kstest(within, lambda t: np.interp(t, grid, sums / sums[-1])).pvalue > 0.01


@pytest.mark.parametrize("name", PROFILES)
def test_in_its_own_time_a_profile_is_poisson(name):
    """Time-changed by the cumulative rate, the gaps are exponential again."""
    process = PROFILES[name]
    period = process.period or float(N)
    drawn = times(process)
    drawn = drawn[drawn < period] if process.period is None else drawn
    grid = np.linspace(0.0, 1.0, 20_001)
    sums = np.concatenate([[0.0], np.cumsum(shape(name, (grid[1:] + grid[:-1]) / 2))])
    unbent = period * (np.floor(drawn / period) + np.interp((drawn / period) % 1, grid, sums / sums[-1]))
    assert stats.kstest(np.diff(unbent), stats.expon().cdf).pvalue > 0.01


def test_a_law_and_a_profile_go_together():
    bursty = times(Arrivals("gamma", cv=3.0, profile="on_off", period=1000.0, duty=0.5))
    assert N / bursty[-1] == pytest.approx(1.0, abs=0.05)
    assert np.all((bursty / 1000.0) % 1 <= 0.5 + 1e-9)


def test_a_longer_draw_begins_as_a_shorter_one():
    for process in (*(process for process, *_ in RENEWAL.values()), PROFILES["stages"], PROFILES["diurnal"]):
        assert times(process, 500)[:100].tolist() == times(process, 100).tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Arrivals("pareto"), "law=pareto: must be one of poisson, gamma, weibull, constant"),
        (lambda: Arrivals(profile="steps"), "profile=steps: must be one of flat, on_off, ramp, stages, diurnal"),
        (lambda: Arrivals(cv=0.0), "cv=0.0: must be from 0.1 to 100"),
        (lambda: Arrivals(cv=math.nan), "cv=nan: must be finite, and from 0.1 to 100"),
        (lambda: Arrivals(period=0.0), "period=0.0: must be greater than 0 and at most 1e+09"),
        (lambda: Arrivals(period=math.inf), "period=inf: must be finite, and greater than 0 and at most 1e+09"),
        (lambda: Arrivals(duty=0.0), "duty=0.0: must be greater than 0 and at most 1"),
        (lambda: Arrivals(swing=-1.0), "swing=-1.0: must be greater than -1 and at most 1"),
        (lambda: Arrivals(profile="stages"), "stages=[]: must be one or more, not all of rate 0"),
        (lambda: Arrivals(profile="stages", stages=[Stage(1, 0)]), "stages=[0]: must be one or more, not all of rate 0"),
        (
            lambda: Arrivals(profile="stages", stages=[Stage(0, 1)]),
            "stages[0].duration=0: must be greater than 0 and at most 1e+09",
        ),
        (
            lambda: Arrivals(profile="stages", stages=[Stage(), Stage(1, -1)]),
            "stages[1].rate=-1: must be at least 0 and at most 1e+09",
        ),
    ],
)
def test_what_is_no_process_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 3.0, 13.15, 100.0])
def test_the_weibull_shape_is_found_for_every_spread(cv):
    shape = weibull_shape(cv)
    law = stats.weibull_min(shape)
    assert law.std() / law.mean() == pytest.approx(cv, rel=1e-6)
