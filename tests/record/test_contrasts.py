"""The figures in which two runs are compared."""

import math

import numpy as np
import pytest

from slotlab.errors import UserError
from slotlab.record.contrasts import Measured, contrasts
from slotlab.record.slo import SLO
from slotlab.record.statistics import paired_bootstrap

PER_POINT = 120


@pytest.fixture(scope="module")
def run(requests_of):
    """A run of two load points and 6 repeats, in which each request takes `speed` times as long as in another."""

    def make(speed, jitter=0.0, slo=None):
        rows, rng = [], np.random.default_rng(int(100 * speed + 1e4 * jitter))
        for point in (0, 1):
            for repeat in range(6):
                work = np.random.default_rng((point, repeat)).exponential(size=PER_POINT) + 0.1
                noise = 1 + jitter * rng.normal(size=PER_POINT)
                for id, took in enumerate(work * speed * noise * (1 + point)):
                    place = {"point": point, "repeat": repeat, "id": id, "arrival": float(id), "started": float(id)}
                    rows.append({**place, "times": [id + took, id + 1.5 * took], "tenant": "ab"[id % 2]})
        return Measured(requests_of(*rows), slo or SLO(ttft=1.0), {})

    return make


def of(found, point=None):
    return {contrast.metric: contrast for contrast in found if contrast.point == point}


def test_a_faster_run_wins_at_every_point_and_by_how_much(run):
    found = contrasts(run(1.0), run(0.5), resamples=300)
    assert {contrast.point for contrast in found} == {None, 0, 1}
    for point in (None, 0, 1):
        some = of(found, point)
        for metric in ("ttft_mean", "ttft_p99", "tpot_mean", "e2e_mean", "e2e_p99", "goodput_fraction", "goodput"):
            assert some[metric].outcome() == "won", (metric, point)
        ttft = some["ttft_mean"]
        assert ttft.interval.difference == pytest.approx(ttft.b - ttft.a) == pytest.approx(-ttft.a / 2)
        assert ttft.interval.low < ttft.interval.difference < ttft.interval.high < 0
    points = [of(found, point)["e2e_p99"].a for point in (0, 1)]
    assert of(found)["e2e_p99"].a == pytest.approx(np.mean(points)), "a figure over all points is the mean of theirs"


def test_noise_alone_makes_no_winner(run):
    found = contrasts(run(1.0, 0.05), run(1.0, 0.06), resamples=300)
    assert {contrast.outcome() for contrast in found if contrast.metric in ("ttft_mean", "e2e_mean", "goodput")} == {
        "no difference"
    }


def test_a_run_against_itself_differs_by_nothing(run):
    for contrast in contrasts(run(1.0), run(1.0), resamples=10):
        assert (contrast.interval.low, contrast.interval.high, contrast.outcome()) == (0, 0, "no difference")


def test_what_there_is_too_little_of_is_said(run):
    a, b = (Measured(one.requests[one.requests["repeat"] == 0][:60], one.slo, {}) for one in (run(1.0), run(0.5)))
    found = of(contrasts(a, b, resamples=100))
    assert found["ttft_mean"].lack == "" and found["ttft_p99"].lack == "fewer than 100 requests per load point"
    assert found["goodput"].lack == "too few repeats" and math.isinf(found["goodput"].interval.high)
    assert found["goodput"].outcome() == "no difference"


def test_other_requests_are_refused(run):
    a = run(1.0)
    with pytest.raises(UserError, match="tenant=a in one run and c in the other"):
        contrasts(a, Measured(a.requests.assign(tenant="c"), a.slo, {}))


def test_the_interval_over_repeats_covers_the_true_difference():
    rng, hits = np.random.default_rng(0), 0
    for trial in range(200):
        a, b = rng.normal(size=(2, 8))
        span = paired_bootstrap(a, b + 1, block=1, seed=trial, resamples=300)
        hits += span.low <= 1 <= span.high
    assert 0.88 <= hits / 200 <= 0.99
