"""So many requests of a tenant in so many seconds. Steps of one time unit, free slots for all."""

from __future__ import annotations

import random

import pytest

from slotlab import Arrival, Point, Status, UserError
from slotlab_plugins.admission.rate_limit import RateLimit
from slotlab_plugins.policies.fcfs import FCFS

# arrival, tenant, turn with two per ten seconds
TABLE = [
    (0, "a", 0),
    (1, "a", 1),
    (2, "a", 10),  # ten after the first
    (2, "b", 2),  # b has a limit of its own
    (3, "a", 11),  # ten after the second
    (10, "a", 20),  # two are within the ten seconds before, though both had to wait
    (30, "a", 30),
    (31, "b", 31),
]


def serve(run, rows, **options):
    arrivals = [Arrival(float(row[0]), 1, 1, 1, row[1]) for row in rows]
    return run(arrivals, FCFS(), slots=64, admission=RateLimit(**options)).states


def test_those_above_the_limit_are_held_until_their_turn(run):
    assert [req.started for req in serve(run, TABLE, limit=2, window=10.0)] == [turn for *_, turn in TABLE]


def test_or_rejected_and_then_they_do_not_count(run):
    states = serve(run, TABLE, limit=2, window=10.0, reject=True)
    # the one at 10 now finds but one within ten seconds
    assert [req.started for req in states] == [0, 1, None, 2, None, 10, 30, 31]
    reasons = {req.reason for req in states if req.status is Status.REJECTED}
    assert reasons == {"more than 2 requests of its tenant in 10 s"}


def test_without_a_limit_all_start_as_they_come(run):
    assert [req.started for req in serve(run, TABLE, limit=100)] == [time for time, *_ in TABLE]


def test_whoever_comes_when_a_hold_ends_does_not_overtake(run):
    rows = [(0, "a"), (1, "a"), (10, "a"), (20, "a")]
    assert [req.started for req in serve(run, rows, limit=1, window=10.0)] == [0, 10, 20, 30]


@pytest.mark.parametrize("seed", range(5))
def test_no_window_wherever_it_begins_has_more_turns_than_the_limit(run, seed):
    rng = random.Random(seed)
    rows = [(time, rng.choice("ab")) for time in sorted(rng.randint(0, 40) for _ in range(40))]
    states = serve(run, rows, limit=3, window=7.0)
    for tenant in "ab":
        starts = [req.started for req in states if req.tenant == tenant]
        assert starts == sorted(starts), "not in the order of arrival"
        assert all(later - sooner >= 7 for sooner, later in zip(starts, starts[3:], strict=False))


def test_the_same_requests_are_rejected_however_fast_they_are_served(run):
    arrivals = [Arrival(0.3 * i, 1, 9, 9) for i in range(30)]
    runs = [run(arrivals, FCFS(), slots=slots, admission=RateLimit(2, 4.0, reject=True)) for slots in (1, 30)]
    assert len({tuple(req.status for req in recorder.states) for recorder in runs}) == 1


def test_a_client_that_waits_for_its_answer_waits_for_its_turn_too(run):
    arrivals = [Arrival(0.0, 1, 1, 1) for _ in range(4)]
    recorder = run(arrivals, FCFS(), point=Point(concurrency=1), admission=RateLimit(2, 10.0))
    assert [req.started for req in recorder.states] == [0, 1, 10, 11]


@pytest.mark.parametrize("seed", range(3))
def test_jumps_change_nothing(run, seed):
    rng = random.Random(seed)
    arrivals = [Arrival(time, 1, 12, rng.randint(1, 12)) for time in sorted(rng.uniform(0, 40) for _ in range(20))]
    one, other = (run(arrivals, FCFS(), slots=4, admission=RateLimit(2, 7.5), jump=jump) for jump in (False, True))
    assert one.times == other.times


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit=0: must be at least 1 and at most 10000000"),
        ({"window": 0.0}, "window=0.0: must be greater than 0 and at most 1e+09"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(options, message):
    with pytest.raises(UserError) as error:
        RateLimit(**options)
    assert str(error.value) == message
