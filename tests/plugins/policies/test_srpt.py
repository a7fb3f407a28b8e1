"""SRPT with limited preemption (TRAIL): who may be displaced, and until when. One slot, steps of one time unit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Predictor, UserError
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.srpt import SRPT

ROWS = [(0, 6), (1, 2), (3, 3), (4, 1), (5, 5), (10, 1)]  # arrival, output tokens; below a to f

# Whoever comes back computes what it had and one new token in the same step, so no time is lost.
TABLES = [
    # a; b (2 < 5) displaces a at 1, ends at 3; c (3 < 5) goes next; d (1 < 2) displaces c at 4, ends at 5; c ends at 7;
    # a (5 to go, as e, but it came first) goes on; at 10 it has 2 to go, and f (1) displaces it, ends at 11; a to 13; e
    (SRPT(c=1.0), [13, 3, 7, 5, 18, 11]),
    # the same up to 10: then a has emitted 4 = floor(0.8 * 6) and is pinned
    (SRPT(), [12, 3, 7, 5, 18, 13]),
    # c is pinned after floor(0.5 * 3) = 1 token, so d waits for it until 6; a, displaced at 1 before its third, from 7 to 12
    (SRPT(c=0.5), [12, 3, 6, 7, 18, 13]),
    # everybody is pinned at once: a to 6, d to 7, b to 9, c to 12, f, e
    (SRPT(c=0.0), [6, 9, 12, 7, 18, 13]),
    (SJF(), [6, 9, 12, 7, 18, 13]),
    (FCFS(), [6, 8, 11, 12, 17, 18]),
]


@dataclass
class Wrong(Predictor):
    """Too high for some, too low for others."""

    def predict(self, req, truth):
        return 1 + (7 * req.id + 3) % 12


def finish(run, arrivals, policy, **options):
    recorder = run(arrivals, policy, **options)
    return [recorder.times[id][-1] for id in range(len(arrivals))]


def draw(rng, n=30):
    """Bursts of requests of 1 to 12 tokens."""
    time, rows = 0.0, []
    for _ in range(n):
        time += rng.choice([0, 0, 1, 2, 5])
        length = rng.randint(1, 12)
        rows.append(Arrival(time, rng.randint(1, 6), 12, length))
    return rows


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("policy", "expected"), TABLES)
def test_a_schedule_worked_out_by_hand(run, policy, expected, jump):
    assert finish(run, [Arrival(float(time), 1, n, n) for time, n in ROWS], policy, jump=jump) == expected


def test_every_bound_differs_from_its_siblings_and_c_0_is_sjf():
    schedules = {f"{policy}": expected for policy, expected in TABLES}
    assert schedules["SRPT(c=0.0)"] == schedules["SJF(aging=0.0)"]
    assert len({tuple(expected) for expected in schedules.values()}) == len(TABLES) - 1


@settings(max_examples=30, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 3))
def test_c_0_is_sjf_as_long_as_the_kv_suffices(run, rng, slots):
    arrivals = draw(rng)
    assert finish(run, arrivals, SRPT(c=0.0), slots=slots) == finish(run, arrivals, SJF(), slots=slots)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rng=st.randoms(use_true_random=False), slots=st.integers(1, 3), c=st.sampled_from([0.0, 0.3, 0.8, 1.0]))
def test_nobody_is_displaced_once_pinned(run, rng, slots, c):
    """The KV suffices, so whoever is preempted was displaced; predictions are wrong, so some outlive theirs."""

    @dataclass
    class Watched(SRPT):
        def preempted(self, req, lost):
            assert req.emitted < math.floor(self.c * req.predicted_output), "it was pinned"

    recorder = run(draw(rng), Watched(c), slots=slots, predictor=Wrong())
    assert c or not any(req.preemptions for req in recorder.states)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rng=st.randoms(use_true_random=False), slots=st.integers(1, 4), blocks=st.integers(17, 40), c=st.sampled_from([0.0, 0.5, 1.0])
)
def test_jumps_equal_single_steps(run, rng, slots, blocks, c):
    arrivals = draw(rng)
    single, jumped = (
        finish(run, arrivals, SRPT(c), slots=slots, blocks=blocks, predictor=Wrong(), jump=jump) for jump in (False, True)
    )
    assert single == jumped


def test_it_is_optimal_on_one_slot_when_the_predictions_are_true(run):
    """Schrage (1968): no other order has a lower mean time in the system."""
    arrivals = [Arrival(float(time), 1, n, n) for time, n in [(0, 9), (1, 4), (2, 2), (6, 1), (7, 5), (8, 1), (9, 2)]]
    sums = [sum(finish(run, arrivals, policy)) for policy in (SRPT(c=1.0), SRPT(), SRPT(c=0.0), FCFS())]
    assert sums == sorted(sums)
    assert len(set(sums)) > 2


@pytest.mark.parametrize("c", [-0.1, 1.1])
def test_a_bound_out_of_range_is_refused(c):
    with pytest.raises(UserError, match=f"^c={c}: must be from 0 to 1$"):
        SRPT(c=c)
