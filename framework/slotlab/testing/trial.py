"""One scenario, served to its end."""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slotlab.clock import VirtualClock
from slotlab.core.blocks import BlockPool
from slotlab.core.prefix import PrefixPool
from slotlab.engine import Engine
from slotlab.errors import PluginError, UserError
from slotlab.plan import Plan, Result, split_work
from slotlab.request import RequestState
from slotlab.sources import request
from slotlab.streams import Streams
from slotlab.testing.checked import CheckedScheduler
from slotlab.testing.executor import Executor
from slotlab.testing.faults import Nonconformance
from slotlab.testing.scenario import Scenario

MAX_BYPASS = 5  # of the core, for those who SKIP


@dataclass
class Trial:
    """A run of `scenario` with these plugins, under the name of the one that is being checked; see `serve`."""

    name: str
    scenario: Scenario
    plugins: Mapping[str, Any]
    engine: Engine | None = None  # by default one that jumps wherever it may
    states: list[RequestState] = field(default_factory=list)
    times: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))  # of output tokens, by request
    decisions: list[tuple[Any, ...]] = field(default_factory=list)  # what each plan came to
    fresh: Counter[int] = field(default_factory=Counter)  # prompt tokens computed for the first time, by request
    first_starts: list[int] = field(default_factory=list)  # seq of requests in the order of their first start

    def __post_init__(self) -> None:
        scenario = self.scenario
        if self.engine is None:
            self.engine = Executor(block_size=scenario.size, num_blocks=scenario.blocks)
        caps = self.engine.num_blocks, self.engine.block_size
        pool = PrefixPool(*caps, self.engine.content) if scenario.prefix_cache else BlockPool(*caps)
        patience = 50 + 4 * scenario.load
        self.scheduler = CheckedScheduler(pool, **self.plugins, max_bypass=MAX_BYPASS, patience=patience)
        self.clock = VirtualClock()
        self._seen: set[int] = set()
        self._events = sorted(scenario.events())

    @property
    def view(self) -> Any:
        """What the plugins see."""
        return self.scheduler.view

    def serve(self, most_steps: int | None = None) -> Trial:
        """To the end, or for so many plans. Nonconformance where the run cannot go on; UserError where a plugin declines it."""
        arrivals, scheduler = self.scenario.arrivals, self.scheduler
        assert self.engine is not None, "made when this was"
        with self._failures():
            self.engine.begin(arrivals, Streams(0))
            for step in self._steps():
                if step == most_steps:
                    return self
            assert scheduler.books.pool.available == self.engine.num_blocks, "blocks are missing at the end"
        return self

    def _steps(self) -> Iterator[int]:
        """Plan after plan; yields how many there were."""
        scheduler, bound = self.scheduler, 500 + 50 * self.scenario.load
        for step in range(bound):
            self._happen()
            if not (self._events or scheduler.unfinished):
                return
            plan = scheduler.plan(self.clock.now())
            self._note(plan)
            plan.until = min(plan.until, self._events[0][0] if self._events else math.inf)
            self._farewell()
            if plan:
                self._execute(plan)
            elif plan.until < math.inf:
                self.clock.sleep_until(plan.until)
            elif scheduler.unfinished:
                raise scheduler.stuck(plan, "nothing runs, and nothing would wake it")
            self._farewell()
            yield step
        raise self.fault("liveness", f"after {bound} steps {self._live()} of {len(self.states)} requests have not ended")

    def _happen(self) -> None:
        """What is due: arrivals and aborts."""
        now, asks = self.clock.now(), self.scenario.asks
        while self._events and self._events[0][0] <= now:
            _, abort, i = heapq.heappop(self._events)
            if abort:
                self.scheduler.abort(self.states[i])
            else:
                asked = request(i, asks[i].time, asks[i].arrival)
                self.states.append(self.scheduler.submit(asked, now, asks[i].output))
            self._farewell()

    def _execute(self, plan: Plan) -> None:
        assert self.engine is not None, "made when this was"
        result = self.engine.submit(plan).result()
        ends = self.clock.advance(result.durations)
        self._count(plan, result, ends)
        self.scheduler.commit(plan, result, ends[-1])

    def _count(self, plan: Plan, result: Result, ends: list[float]) -> None:
        for (req, n), out in zip(plan.tokens.items(), result.emitted, strict=True):
            self.fresh[req.id] += split_work(req, n)[0]
            self.times[req.id] += ends if out > 1 else ends[-1:] * out

    def _note(self, plan: Plan) -> None:
        """Enter what was decided, and who starts for the first time."""
        running = self.scheduler.books.running
        tokens = tuple((req.id, n) for req, n in plan.tokens.items())
        out = tuple((req.id, req.preemptions) for req in self.states if req.preemptions)
        self.decisions.append((plan.time, tokens, tuple(req.id for req in running), out, plan.bound))
        new = [req.seq for req in running if req.seq not in self._seen]
        self.first_starts += new
        self._seen.update(new)

    def _farewell(self) -> None:
        assert self.engine is not None, "made when this was"
        for req in self.scheduler.departed():
            self.engine.left(req)

    def _live(self) -> int:
        books = self.scheduler.books
        return len(books.running) + len(books.waiting) + len(books.held)

    def outcome(self) -> list[tuple[Any, ...]]:
        """What came of each request: the same with and without jumps."""
        return [(req.status, req.started, req.preemptions, req.recomputed, *self.times[req.id]) for req in self.states]

    def fault(self, rule: str, what: str) -> Nonconformance:
        """To be raised."""
        return Nonconformance(self.name, rule, what, self.scenario)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Whatever goes wrong becomes a fault at this scenario."""
        try:
            yield
        except Nonconformance as fault:
            raise fault.at(self.scenario) from None
        except UserError:
            raise
        except PluginError as error:
            cause = error.__cause__
            if isinstance(cause, Nonconformance):  # in a method that another plugin called
                raise cause.at(self.scenario) from None
            rule = "liveness" if "nothing" in str(error) else "no errors"
            raise self.fault(rule, str(error)) from error
        except Exception as error:
            raise self.fault("invariants", f"{error}" or type(error).__name__) from error
