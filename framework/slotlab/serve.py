"""The whole system in one loop, on the wall clock and on a virtual one."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
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
    limit: float = math.inf,
) -> None:
    """Serve every request to its end, or until `limit`. `truth`: a request's output length, for an oracle predictor only."""
    while source or scheduler.unfinished:
        if clock.now() >= limit:
            recorder.ended_early = True
            return abort_all(scheduler, engine, source, clock)
        while due := source.due(clock.now()):
            for req in due:
                recorder.submitted(scheduler.submit(req, clock.now(), truth(req.id)))
            farewell(scheduler, engine, source, clock)  # a client whose request was refused may send its next one at once
        before = perf_counter()
        plan = scheduler.plan(clock.now())
        planned = perf_counter()
        farewell(scheduler, engine, source, clock)
        plan.until = min(plan.until, source.next_time())
        if plan:
            plan.until = min(plan.until, limit)
            result = engine.submit(plan).result()
            ends = clock.advance(result.durations)
            executed = perf_counter()
            recorder.step(plan, result, ends)
            recorded = perf_counter()
            scheduler.commit(plan, result, ends[-1])
            recorder.host(planned - before, executed - planned, perf_counter() - recorded)
            farewell(scheduler, engine, source, clock)
        elif plan.until < math.inf:
            clock.sleep_until(min(plan.until, limit))
        elif scheduler.unfinished:
            raise stuck(plan, scheduler)  # an error, not a hang
        else:
            assert not source, "the source has more to come, but nothing would make it come"


def abort_all(scheduler: Scheduler, engine: Engine, source: Source, clock: Clock) -> None:
    """Abort every request that has not left, between steps."""
    books = scheduler.books
    for req in [*books.running, *books.waiting, *(req for *_, req in books.held)]:
        scheduler.abort(req)
    farewell(scheduler, engine, source, clock)


def farewell(scheduler: Scheduler, engine: Engine, source: Source, clock: Clock) -> None:
    """Tell engine and source who has left."""
    for state in scheduler.departed():
        engine.left(state)
        source.left(state, clock.now())


def stuck(plan: Plan, scheduler: Scheduler) -> PluginError:
    """Nothing runs and nothing would wake it: the plugin that most likely did that, and the first who suffers."""
    books, plugins = scheduler.books, scheduler.plugins
    if books.running:
        starved = plugins.quotas or not plan.seated or scheduler.view.tokens_left <= 0
        plugin: object = plugins.batching if starved else plugins.preemption
    elif books.waiting:
        plugin = {"none": plugins.policy, "kv": plugins.admission}.get(plan.bound, plugins.batching)
    else:
        plugin = plugins.admission
    head = next(chain(books.running, books.waiting, (req for *_, req in books.held)))
    return PluginError(plugin, head, "nothing runs, and nothing would wake it")
