"""Estimates with errors of a chosen size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from slotlab import Arrival, Request, UserError
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.predictors.basic import Oracle
from slotlab_plugins.predictors.noisy import Noisy

N = 4000


def estimates(predictor: Noisy, truths: np.ndarray) -> np.ndarray:
    return np.array([predictor.predict(Request(id, 0.0, 7, 10**6), int(n)) for id, n in enumerate(truths)])


def lengths(law: str) -> np.ndarray:
    rng = np.random.default_rng(5)
    return np.rint(rng.lognormal(5.0, 0.7, N) if law == "lognormal" else rng.uniform(100, 500, N)) + 1


@pytest.mark.parametrize("tau", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("law", ["lognormal", "uniform"])
def test_the_rank_correlation_is_what_was_asked_for(law, tau):
    truths = lengths(law)
    predictor = Noisy(error=None, tau=tau, spread=float(np.log(truths).std()))
    assert kendalltau(truths, estimates(predictor, truths)).statistic == pytest.approx(tau, abs=0.03)


@pytest.mark.parametrize("error", [0.1, 0.5])
def test_the_relative_error_is_what_was_asked_for(error):
    truths = np.full(N, 10_000)
    relative = estimates(Noisy(error=error), truths) / truths - 1
    assert relative.std() == pytest.approx(error, rel=0.06)
    assert relative.mean() == pytest.approx(0.0, abs=4 * error / N**0.5)


def test_no_noise_is_the_truth():
    truths = lengths("uniform")
    for predictor in (Noisy(error=0.0), Noisy(error=None, tau=1.0)):
        assert np.array_equal(estimates(predictor, truths), truths)


def test_an_estimate_depends_on_the_seed_and_the_request_and_not_on_its_turn():
    truths = lengths("uniform")[:50]
    first = estimates(Noisy(), truths)
    predictor = Noisy()
    backwards = [predictor.predict(Request(id, 9.0, 7, 10**6), int(truths[id])) for id in reversed(range(50))]
    assert backwards[::-1] == list(first)
    assert list(estimates(Noisy(seed=1), truths)) != list(first)


def test_another_request_of_the_same_number_errs_anew():
    """As in the next repeat, which would otherwise repeat the luck of the first."""
    one, other = (Noisy().predict(Request(3, 0.0, prompt, 10**6), 1000) for prompt in (7, 8))
    assert one != other


def test_no_estimate_exceeds_the_cap():
    wild = Noisy(error=None, tau=0.001)
    found = {wild.predict(Request(id, 0.0, 1, 100), 10) for id in range(200)}
    assert min(found) >= 0 and max(found) == 100


def test_shortest_first_errs_where_the_estimates_do(run):
    """One slot, four requests. The truth: 2 3 4 5 tokens, in this order 2, 5, 9, 14."""
    arrivals = [Arrival(0.0, 1, 50, n) for n in (5, 4, 3, 2)]
    finish = {}
    for name, predictor in {"oracle": Oracle(), "exact": Noisy(error=0.0), "noisy": Noisy(error=2.0)}.items():
        recorder = run(arrivals, SJF(), predictor=predictor)
        finish[name] = [recorder.times[id][-1] for id in range(4)]
    noisy = [Noisy(error=2.0).predict(Request(id, 0.0, 1, 50), a.output_tokens) for id, a in enumerate(arrivals)]
    order = sorted(range(4), key=lambda id: (max(1, noisy[id]), id))
    assert finish["oracle"] == finish["exact"] == [14, 9, 5, 2]
    ends = np.cumsum([arrivals[id].output_tokens for id in order])
    assert finish["noisy"] == [ends[order.index(id)] for id in range(4)]
    assert finish["noisy"] != finish["oracle"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.5}, "tau=0.5: must be null where error is set, and set where that is null (predictor=noisy_tau)"),
        ({"error": None}, "tau=None: must be null where error is set, and set where that is null (predictor=noisy_tau)"),
        ({"error": -0.1}, "error=-0.1: must be at least 0 and at most 1e+06, or null"),
        ({"error": None, "tau": 0.0}, "tau=0.0: must be above 0 and at most 1, or null"),
        ({"error": None, "tau": 1.1}, "tau=1.1: must be above 0 and at most 1, or null"),
        ({"spread": 0.0}, "spread=0.0: must be greater than 0 and at most 100"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(options, message):
    with pytest.raises(UserError) as error:
        Noisy(**options)
    assert str(error.value) == message
