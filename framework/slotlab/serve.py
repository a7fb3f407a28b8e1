"""The whole system in one loop, on the wall clock and on a virtual one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from slotlab import signals
from slotlab.clock import Clock
from slotlab.core import outcome
from slotlab.core.scheduler import Scheduler
from slotlab.engine import Engine, Handle
from slotlab.errors import PluginError
from slotlab.plan import Plan, Result
from slotlab.record.recorder import Recorder
from slotlab.request import RequestState
from slotlab.sources import Source


def serve(
    source: Source,
    scheduler: Scheduler,
    engine: Engine,
    clock: Clock,
    recorder: Recorder,
    truth: Callable[[int], int | None] = lambda id: None,
    limit: float = math.inf,
) -> None:
    """Serve every request to its end, or until `limit`. `truth`: a request's output length, for an oracle predictor only."""
    Server(source, scheduler, engine, clock, recorder, truth).run(limit)


@dataclass
class Server:
    """The loop. An engine that can tell what will come of a step has one in flight while the next is planned."""

    source: Source
    scheduler: Scheduler
    engine: Engine
    clock: Clock
    recorder: Recorder
    truth: Callable[[int], int | None]
    flight: tuple[Handle, Result, list[RequestState]] | None = None  # a step under way, its forecast, and who leaves with it

    def run(self, limit: float = math.inf) -> None:
        """Serve every request to its end, or until `limit`."""
        try:
            while self.source or self.scheduler.unfinished or self.flight:
                signals.check()
                if self.clock.now() >= limit:
                    self.recorder.ended_early = True
                    return self.abort_all()
                self.let_in()
                self.step(limit)
        except PluginError:
            self.flight = None
            raise
        finally:
            self.land()  # also if interrupted: the record ends with a step, not inside one

    def let_in(self) -> None:
        """Submit what is due."""
        while due := self.source.due(self.clock.now()):
            for req in due:
                self.recorder.submitted(self.scheduler.submit(req, self.clock.now(), self.truth(req.id)))
            self.farewell()  # a client whose request was refused may send its next one at once

    def step(self, limit: float) -> None:
        """Plan, and execute; or wait for what can be waited for."""
        before, clock = perf_counter(), self.clock
        plan = self.scheduler.plan(clock.now())
        planned = perf_counter()
        self.farewell()
        plan.until = min(plan.until, self.source.next_time())
        if plan:
            plan.until = min(plan.until, limit)
            self.execute(plan, planned - before)
        elif self.flight:
            self.land()
        elif plan.until < math.inf:
            clock.sleep_until(min(plan.until, limit))
        elif self.scheduler.unfinished:
            raise self.scheduler.stuck(plan, "nothing runs, and nothing would wake it")  # an error, not a hang
        else:
            assert not self.source, "the source has more to come, but nothing would make it come"

    def execute(self, plan: Plan, planning: float) -> None:
        """Have a plan executed; wait for its end, or where what it comes to is known for the end of the one before."""
        submitted = perf_counter()
        handle = outcome.submit(self.engine, plan)
        self.land()
        if foretold := outcome.forecast(self.engine, plan, handle):
            result = foretold
            self.recorder.begun(plan)
        else:
            result = outcome.outcome(self.engine, plan, handle)
            ends = self.clock.advance(result.durations)
            self.recorder.step(plan, result, ends)
        executed = perf_counter()
        self.scheduler.commit(plan, result, self.clock.now())
        if foretold:
            self.flight = handle, foretold, self.scheduler.departed()
        self.recorder.host(planning, executed - submitted, perf_counter() - executed)
        self.farewell()

    def land(self) -> None:
        """Wait for the step that is under way, if there is one."""
        if self.flight:
            handle, foretold, leaving = self.flight
            result = outcome.arrived(self.engine, handle, foretold)
            self.flight = None
            self.recorder.ended(result, self.clock.advance(result.durations))
            self.see_off(leaving)

    def abort_all(self) -> None:
        """Abort every request that has not left, between steps."""
        self.land()
        books = self.scheduler.books
        for req in [*books.running, *books.waiting, *(req for *_, req in books.held)]:
            self.scheduler.abort(req)
        self.farewell()

    def farewell(self) -> None:
        """See off those who have left since this was last called."""
        self.see_off(self.scheduler.departed())

    def see_off(self, leaving: Sequence[RequestState]) -> None:
        """Tell engine and source who has left."""
        for state in leaving:
            outcome.ask(self.engine, "left", self.engine.left, state)
            self.source.left(state, self.clock.now())
