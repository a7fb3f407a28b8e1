"""What is learnt from the answers so far."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slotlab import Arrival, Request, UserError
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.predictors.basic import NoPredictor, Oracle
from slotlab_plugins.predictors.constant import Constant
from slotlab_plugins.predictors.history import History


def finish(history: History, tenant: str, prompt: int, *lengths: int) -> None:
    for length in lengths:
        history.finished(SimpleNamespace(tenant=tenant, prompt_tokens=prompt, emitted=length))


def estimate(history: History, tenant: str, prompt: int) -> int:
    return history.predict(Request(0, 0.0, prompt, 1000, tenant), None)


def test_the_closest_kin_that_have_finished_tell():
    history = History()
    assert estimate(history, "a", 5) == 1000  # nobody has
    finish(history, "b", 100, 40)
    assert estimate(history, "a", 5) == 40  # everybody
    finish(history, "a", 100, 20)
    assert estimate(history, "a", 5) == 20  # the tenant
    finish(history, "a", 4, 8)
    assert estimate(history, "a", 5) == 8  # the tenant's with prompts of 4 to 7 tokens
    assert [estimate(history, "a", prompt) for prompt in (4, 7, 8, 127, 128)] == [8, 8, 8, 20, 8]
    assert [estimate(history, tenant, 64) for tenant in "abc"] == [20, 40, 20]  # the median of 8 20 40


@pytest.mark.parametrize(("quantile", "expected"), [(0.0, 10), (0.5, 20), (0.51, 30), (0.75, 30), (0.9, 40), (1.0, 40)])
def test_the_quantile_is_the_smallest_length_that_the_share_does_not_exceed(quantile, expected):
    history = History(quantile)
    finish(history, "a", 1, 40, 10, 30, 20)
    assert estimate(history, "a", 1) == expected


def test_only_the_last_window_counts():
    rng, history, lengths = random.Random(3), History(window=5), []
    for _ in range(200):
        lengths.append(rng.randint(1, 9))
        finish(history, "a", 1, lengths[-1])
        recent = sorted(lengths[-5:])
        assert estimate(history, "a", 1) == recent[-(-len(recent) // 2) - 1]


# arrival, prompt, output; caps of 20; one slot
WORK = [(0, 2, 6), (0, 16, 2), (8, 3, 5), (8, 17, 2), (8, 5, 1)]

TABLES = [
    # equal caps: as they come
    (NoPredictor(), [6, 8, 13, 15, 16]),
    (Constant(3), [6, 8, 13, 15, 16]),
    # A before B, for nobody has finished. At 8: C is as A was, 6; D as B was, 2; E, of neither kind: of 2 6 the median, 2
    (History(), [6, 8, 16, 10, 11]),
    # the same, but E counts as 6; it comes after C
    (History(quantile=1.0), [6, 8, 15, 10, 16]),
    # B2 A6; then E1 D2 C5
    (Oracle(), [8, 2, 16, 11, 9]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("predictor", "ends"), TABLES)
def test_a_schedule_worked_out_by_hand(run, predictor, ends, jump):
    arrivals = [Arrival(float(time), prompt, 20, output) for time, prompt, output in WORK]
    recorder = run(arrivals, SJF(), predictor=replace(predictor), jump=jump)
    assert [recorder.times[id][-1] for id in range(5)] == ends


def test_a_constant_above_the_cap_is_the_cap(run):
    recorder = run([Arrival(0.0, 1, cap, 1) for cap in (2, 9)], SJF(), predictor=Constant(5))
    assert [req.predicted_output for req in recorder.states] == [2, 5]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: History(quantile=1.5), "quantile=1.5: must be from 0 to 1"),
        (lambda: History(window=0), "window=0: must be at least 1 and at most 10000000"),
        (lambda: Constant(0), "tokens=0: must be at least 1 and at most 1000000000"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message
