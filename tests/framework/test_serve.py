"""The serve loop: when requests come, when steps start, and who is told what."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slotlab import Accept, Admission, Arrival, Batching, Closed, Hold, Open, Point, Reject, Status, Streams
from slotlab.clock import VirtualClock, WallClock
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import ClosedLoop, OpenLoop, source
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated


@dataclass
class RefuseLong(Admission):
    """Rejects prompts of more than 9 tokens."""

    def admit(self, req, view):
        return Reject("too long for us") if req.prompt_tokens > 9 else Accept()


@pytest.mark.parametrize("jump", [False, True])
def test_an_arrival_joins_the_step_that_starts_at_its_time(run, arrive, jump):
    served = run(arrive([9, 2, 2], times=[0.0, 3.0, 4.5]), jump=jump)
    assert [req.started for req in served.states] == [0.0, 3.0, 5.0]
    assert [req.submitted for req in served.states] == [0.0, 3.0, 5.0]
    assert served.finish() == [9.0, 5.0, 7.0]


def test_time_passes_without_steps_while_nobody_is_there(run, arrive):
    served = run(arrive([2, 2], times=[5.0, 50.0]))
    assert served.finish() == [7.0, 52.0]
    assert [row["start"] for row in served.tables()["steps"].to_pylist()] == [5.0, 6.0, 50.0, 51.0]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("clients", [1, 2, 5])
def test_a_closed_loop_keeps_its_number_of_clients(run, arrive, clients, jump):
    lengths = [3, 7, 1, 4, 2, 9, 5, 3, 8, 2]
    served = run(arrive(lengths), point=Point(concurrency=clients), jump=jump, batching=Continuous(2, 64))
    requests = served.tables()["requests"].to_pandas()
    assert (requests["status"] == "finished").all()
    for time in requests["scheduled_arrival"]:
        inside = ((requests["scheduled_arrival"] <= time) & (requests["finish"] > time)).sum()
        to_come = (requests["scheduled_arrival"] > time).sum()
        assert inside == clients or to_come == 0
    if clients == 1:
        assert list(requests["finish"]) == [float(sum(lengths[: i + 1])) for i in range(10)]


@pytest.mark.parametrize("jump", [False, True])
def test_a_client_whose_request_is_refused_sends_its_next_one_at_once(run, arrive, jump):
    arrivals = arrive([20, 3, 1, 1, 2], prompts=[1, 1, 99, 99, 1])
    served = run(arrivals, point=Point(concurrency=2), admission=RefuseLong(), jump=jump)
    assert [req.status.value for req in served.states] == ["finished", "finished", "rejected", "rejected", "finished"]
    assert [req.arrival for req in served.states] == [0.0, 0.0, 3.0, 3.0, 3.0]
    assert served.states[2].reason == "too long for us"
    assert served.recorder.times[4] == [4.0, 5.0]


@pytest.mark.parametrize("jump", [False, True])
def test_a_client_whose_request_is_refused_while_held_is_free_at_that_time(run, arrive, jump):
    @dataclass
    class ThinkFirst(Admission):
        def admit(self, req, view):
            return Accept() if req.id != 1 else Hold(4.0) if view.now < 4.0 else Reject("on second thoughts")

    served = run(arrive([20, 1, 2]), point=Point(concurrency=2), admission=ThinkFirst(), jump=jump)
    assert [req.arrival for req in served.states] == [0.0, 0.0, 4.0]
    assert served.recorder.times[2] == [6.0, 7.0], "its answer came after the step of time 4 was planned"


def test_when_everything_is_refused_there_is_no_step(run, arrive):
    for point in (Point(), Point(rate=2.0), Point(concurrency=1)):
        served = run(arrive([1, 1, 1], prompts=99), point=point, admission=RefuseLong())
        assert [req.status for req in served.states] == [Status.REJECTED] * 3
        assert [len(table) for table in served.tables().values()] == [3, 0, 0]


@pytest.mark.parametrize("jump", [False, True])
def test_a_closed_gate_is_asked_again_at_its_time(run, arrive, jump):
    @dataclass
    class AtTen(Batching):
        def gate(self, view):
            return Open() if view.now >= 10.0 else Closed(10.0)

    assert run(arrive([2, 2], times=[0.0, 4.0]), batching=AtTen(4, 64), jump=jump).finish() == [12.0, 12.0]


@pytest.mark.parametrize("jump", [False, True])
def test_a_held_request_is_asked_about_again_while_others_decode(run, arrive, jump):
    @dataclass
    class HoldSecond(Admission):
        def admit(self, req, view):
            return Hold(6.0) if req.id == 1 and view.now < 6.0 else Accept()

    served = run(arrive([20, 2]), admission=HoldSecond(), jump=jump)
    assert [req.started for req in served.states] == [0.0, 6.0]


def test_rates_divide_unit_gaps_exactly():
    times = [0.1 * i + 1 / 3 for i in range(50)]
    arrivals = [Arrival(time, 1, 1, 1, deadline=2.0) for time in times]
    for rate in (0.3, 1.0, 7.0, 16.0):
        sent = OpenLoop(arrivals, rate).due(float("inf"))
        assert [req.arrival for req in sent] == [time / rate for time in times]
        assert [req.deadline for req in sent] == [time / rate + 2.0 for time in times]


def test_a_point_chooses_its_loop():
    arrivals = [Arrival(6.0, 1, 1, 1)]
    assert source(arrivals, Point()).next_time() == 6.0
    assert source(arrivals, Point(rate=2.0)).next_time() == 3.0
    assert isinstance(source(arrivals, Point(concurrency=3)), ClosedLoop)


@dataclass
class Listening(OpenLoop):
    """An open loop that writes down who left, and when."""

    arrivals: list[Arrival]
    heard: list[tuple[int, float]] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(self.arrivals)

    def left(self, req, now):
        self.heard.append((req.id, now))


def test_the_source_hears_of_everybody_who_leaves_once_and_at_that_time(arrive):
    arrivals = arrive([3, 1, 2], prompts=[1, 99, 1], times=[0.0, 0.0, 1.0])
    stream, engine, clock, recorder = Listening(arrivals), Simulated(cost="unit"), VirtualClock(), Recorder()
    engine.begin(arrivals, Streams(0))
    serve(stream, Scheduler(BlockPool(64, 16), admission=RefuseLong()), engine, clock, recorder)
    assert stream.heard == [(1, 0.0), (0, 3.0), (2, 3.0)]
    assert clock.now() == 3.0
    assert len(recorder.hosts) == len(recorder.steps)


def test_clocks_never_go_back():
    clock = VirtualClock()
    assert clock.advance([0.5, 0.25]) == [0.5, 0.75]
    clock.sleep_until(0.1)
    assert clock.now() == 0.75
    clock.sleep_until(2.0)
    assert clock.now() == 2.0
    wall = WallClock()
    before = wall.now()
    wall.sleep_until(before - 1.0)
    wall.sleep_until(before + 0.001)
    assert wall.advance([0.3])[0] >= before + 0.001, "the wall clock does not believe in durations"
    with pytest.raises(AssertionError, match="cannot jump"):
        wall.advance([0.1, 0.1])
