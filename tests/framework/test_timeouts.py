"""Requests that are given up if they have not started by a time."""

from __future__ import annotations

import pytest

from slotlab import Arrival, Point, Status, UserError
from slotlab_plugins.admission.queue_timeout import QueueTimeout
from slotlab_plugins.batching.continuous import Continuous


@pytest.mark.parametrize("jump", [False, True])
def test_who_has_not_started_in_time_is_refused_at_that_time_and_not_before(run, arrive, jump):
    """One slot, ten tokens each: the second waits from 0 to 10; the third would start at 20, but has left at 12.5."""
    arrivals = arrive([10, 10, 10], times=[0.0, 0.0, 0.5])
    served = run(arrivals, batching=Continuous(1, 64), admission=QueueTimeout(timeout=12.0), jump=jump)
    assert [req.status for req in served.states] == [Status.FINISHED, Status.FINISHED, Status.REJECTED]
    assert [len(served.recorder.times[i]) for i in range(3)] == [10, 10, 0]
    assert served.states[2].reason == "had not started after 12 of waiting"


def test_a_client_that_was_refused_sends_its_next_request(run, arrive):
    served = run(arrive([10, 4, 1]), batching=Continuous(1, 64), admission=QueueTimeout(timeout=3.0), point=Point(concurrency=2))
    assert [req.status for req in served.states] == [Status.FINISHED, Status.REJECTED, Status.REJECTED]
    assert served.states[2].arrival == 3.0


def test_whoever_has_started_once_is_not_given_up(run):
    """The second is preempted and waits again, past its time."""
    arrivals = [Arrival(0.0, 4, 12, 12), Arrival(0.0, 4, 12, 12)]
    served = run(arrivals, blocks=16, size=1, admission=QueueTimeout(timeout=2.0))
    assert sum(req.preemptions for req in served.states) > 0
    assert [req.status for req in served.states] == [Status.FINISHED, Status.FINISHED]


def test_a_timeout_below_zero_is_refused():
    with pytest.raises(UserError, match=r"^timeout=0: must be greater than 0 and at most 1e\+09$"):
        QueueTimeout(timeout=0)
