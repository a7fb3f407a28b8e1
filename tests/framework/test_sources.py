"""Loops that wait: sessions in the open and in the closed loop, clients that think."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slotlab import Arrival, Point, Streams
from slotlab.sources import ClosedLoop, source


def turn(length, follows=None, think=0.0, time=0.0, prompt=1):
    return Arrival(time, prompt, length, length, follows=follows, think=think)


@pytest.mark.parametrize("jump", [True, False])
@pytest.mark.parametrize("point", [Point(), Point(rate=2.0), Point(concurrency=1)])
def test_a_turn_is_sent_its_time_to_think_after_the_answer_before(run, point, jump):
    served = run([turn(4), turn(3, follows=0, think=2.5), turn(2, follows=1)], point=point, jump=jump)
    assert [req.arrival for req in served.states] == [0.0, 6.5, 9.5]
    assert served.finish() == [4.0, 9.5, 11.5]


def test_sessions_do_not_wait_for_each_other(run):
    arrivals = [turn(6), turn(1, follows=0, think=1.0), turn(2, time=3.0), turn(1, follows=2, think=1.0)]
    served = run(arrivals, point=Point(rate=1.0))
    assert {req.id: req.arrival for req in served.states} == {0: 0.0, 2: 3.0, 3: 6.0, 1: 7.0}


def test_a_turn_that_was_refused_is_answered_at_once(run):
    served = run([turn(2, prompt=10_000), turn(2, follows=0, think=1.0)])
    assert [(req.arrival, req.status.value) for req in served.states] == [(0.0, "rejected"), (1.0, "finished")]


def test_a_client_goes_through_a_session_before_it_takes_the_next_one(run):
    arrivals = [turn(2), turn(2, follows=0, think=3.0), turn(1), turn(5)]
    served = run(arrivals, point=Point(concurrency=1))
    assert [(req.id, req.arrival) for req in served.states] == [(0, 0.0), (1, 5.0), (2, 7.0), (3, 8.0)]


def test_branches_of_a_session_do_not_multiply_the_clients(run):
    arrivals = [turn(2), turn(3, follows=0), turn(3, follows=0), turn(1)]
    served = run(arrivals, point=Point(concurrency=1))
    assert [(req.id, req.arrival) for req in served.states] == [(0, 0.0), (1, 2.0), (2, 5.0), (3, 8.0)]


def test_a_client_that_thinks_does_so_for_as_long_after_the_same_answer_whatever_the_policy():
    arrivals = [turn(1) for _ in range(2000)]
    first, second = (source(arrivals, Point(concurrency=2, think=3.0), Streams(7, 1)) for _ in range(2))
    assert isinstance(first, ClosedLoop) and isinstance(second, ClosedLoop)
    assert list(first.thinks) == list(second.thinks)
    assert np.mean(first.thinks) == pytest.approx(3.0, rel=0.1)
    other = source(arrivals, Point(concurrency=2, think=3.0), Streams(7, 2))
    assert isinstance(other, ClosedLoop) and list(other.thinks) != list(first.thinks)


def test_a_client_thinks_between_its_answer_and_its_next_request(run):
    loop = ClosedLoop([turn(2) for _ in range(4)], 1, thinks=[1.0, 0.5, 4.0, 0.0])
    gone, now, sent = None, 0.0, []
    while loop:
        if gone is not None:
            loop.left(gone, now)
        now = loop.next_time()
        (gone,) = loop.due(now)
        sent.append((gone.id, gone.arrival))
        now += 2.0
    assert sent == [(0, 0.0), (1, 3.0), (2, 5.5), (3, 11.5)]


def test_never_more_than_the_clients_are_under_way(run, draw_arrivals):
    plain = draw_arrivals(3, 40, 8, 8, 1.0)
    arrivals = [replace(arrival, follows=i - 1 if i % 3 else None) for i, arrival in enumerate(plain)]
    served = run(arrivals, point=Point(concurrency=3))
    assert len(served.states) == 40
    changes = sorted([(req.arrival, 1) for req in served.states] + [(end, -1) for end in served.finish()])
    assert max(np.cumsum([change for _, change in changes])) <= 3


def test_an_arrival_can_only_follow_an_earlier_one():
    with pytest.raises(AssertionError, match="arrival 0 follows 1, which does not come before it"):
        source([turn(1, follows=1), turn(1)], Point())
