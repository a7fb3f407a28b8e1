"""The whole system in one loop, on the wall clock and on a virtual one."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

from slotlab.clock import Clock
from slotlab.core.scheduler import Scheduler
from slotlab.engine import Engine
from slotlab.errors import PluginError
from slotlab.plan import Plan
from slotlab.record.recorder import Recorder
from slotlab.sources import Source


def serve(
    source: Source,
    scheduler: Scheduler,
    engine: Engine,
    clock: Clock,
    recorder: Recorder,
    truth: Callable[[int], int | None] = lambda id: None,
) -> None:
    """Serve every request to its end. `truth` gives a request's output length, for an oracle predictor only."""
    while source or scheduler.unfinished:
        for req in source.due(clock.now()):
            recorder.submitted(scheduler.submit(req, clock.now(), truth(req.id)))
        before = perf_counter()
        plan = scheduler.plan(clock.now())
        plan.until = min(plan.until, source.next_time())
        planned = perf_counter()
        if plan:
            result = engine.submit(plan).result()
            ends = clock.advance(result.durations)
            executed = perf_counter()
            recorder.step(plan, result, ends)
            recorded = perf_counter()
            scheduler.commit(plan, result, ends[-1])
            recorder.host(planned - before, executed - planned, perf_counter() - recorded)
        gone = scheduler.departed()
        for state in gone:
            engine.left(state)
            source.left(state, clock.now())
        if not (plan or gone):
            wait(plan, scheduler, clock)


def wait(plan: Plan, scheduler: Scheduler, clock: Clock) -> None:
    """Nothing can run now: sleep until something can. If nothing ever would, that is an error, not a hang."""
    if clock.now() < plan.until < math.inf:
        clock.sleep_until(plan.until)
    elif plan.until > clock.now():
        books = scheduler.books
        head = next(iter([*books.running, *books.waiting]), None)
        raise PluginError(scheduler.plugins.policy, head, "nothing runs, and nothing would wake it")
