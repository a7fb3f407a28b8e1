"""Triton's dynamic batcher: when a batch starts, and how large it is. Steps of one time unit."""

from __future__ import annotations

from collections import Counter

import pytest

from slotlab import Arrival, UserError
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.dynamic import Dynamic
from slotlab_plugins.batching.static import Static
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority

LENGTHS = [2, 2, 1, 3, 1]  # one request comes in each time unit

TABLES = [
    # each starts as it comes
    (Continuous, {}, [2, 3, 3, 6, 5]),
    # 0: {A} until 2; {B, C} until 4; {D, E}
    (Static, {}, [2, 4, 3, 7, 5]),
    # without delay it is the same
    (Dynamic, {"max_delay": 0.0, "preferred": [2]}, [2, 4, 3, 7, 5]),
    # 1: {A, B} until 3; {C, D} until 6; E has waited 2 of 3, goes at 7
    (Dynamic, {"max_delay": 3.0, "preferred": [2]}, [3, 3, 4, 6, 8]),
    # 2: {A, B, C} until 4; D and E are too few until D has waited 2, at 6
    (Dynamic, {"max_delay": 3.0, "preferred": [3]}, [4, 4, 3, 9, 7]),
    # 3: all four slots; E waits alone from 6 to 7
    (Dynamic, {"max_delay": 3.0}, [5, 5, 4, 6, 8]),
]


def times(recorder) -> list[float]:
    return [recorder.times[req.id][-1] for req in recorder.states]


def batch_sizes(recorder) -> dict[float, int]:
    """How many started at each time."""
    return dict(Counter(req.started for req in recorder.states))


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("batching", "options", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, batching, options, finish, jump):
    arrivals = [Arrival(float(i), 1, n, n) for i, n in enumerate(LENGTHS)]
    assert times(run(arrivals, FCFS(), batching=batching(4, 512, **options), jump=jump)) == finish


def test_a_batch_is_the_preferred_size_and_not_one_more(run):  # Triton, server#8141
    arrivals = [Arrival(float(i), 1, 1, 1) for i in range(12)]
    recorder = run(arrivals, FCFS(), batching=Dynamic(8, 512, max_delay=10.0, preferred=[4]))
    assert batch_sizes(recorder) == {3: 4, 7: 4, 11: 4}


def test_a_backlog_waits_in_the_preferred_size_until_the_delay_is_over(run):
    arrivals = [Arrival(float(i), 1, 6, 6) for i in range(24)]
    recorder = run(arrivals, FCFS(), batching=Dynamic(8, 512, max_delay=10.0, preferred=[2, 4]))
    # at 1 the first two; then as many of the next as are preferred, all within their delay while they are few:
    # at 7 wait 2..7, six: four; at 13 wait 6..13, eight: four; at 19 the oldest is 10, nine old: four; at 25 it is 14, and
    # eleven old: as many as there are slots, of ten; the last two are preferred, and late besides
    assert batch_sizes(recorder) == {1: 2, 7: 4, 13: 4, 19: 4, 25: 8, 31: 2}


def test_the_rest_of_a_burst_waits_out_its_delay(run):
    arrivals = [Arrival(0.0, 1, 1, 1) for _ in range(5)]
    assert batch_sizes(run(arrivals, FCFS(), batching=Dynamic(8, 512, max_delay=2.5, preferred=[4]))) == {0: 4, 2.5: 1}


def test_the_policy_chooses_who_is_in_the_batch(run):
    arrivals = [Arrival(0.0, 1, 3, 3, priority=priority) for priority in (2, 1, 0)]
    batching = Dynamic(4, 512, max_delay=2.0, preferred=[2])
    assert [req.started for req in run(arrivals, Priority(), batching=batching).states] == [3, 0, 0]


@pytest.mark.parametrize("preferred", [[4, 2], [2, 2], [0, 2], [2, 9]])
def test_sizes_that_could_never_be_chosen_are_refused(preferred):
    with pytest.raises(UserError) as error:
        Dynamic(8, 512, preferred=preferred)
    assert str(error.value) == f"preferred={preferred}: must be rising sizes from 1 to max_num_seqs=8"


def test_a_negative_delay_is_refused():
    with pytest.raises(UserError, match=r"max_delay=-1\.0: must be at least 0"):
        Dynamic(8, 512, max_delay=-1.0)
