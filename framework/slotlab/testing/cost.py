"""What a step costs beside a long queue: counted in calls, which are the same on every machine, and timed for the reader."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.lab.offers import class_of
from slotlab.plan import Result
from slotlab.request import Request
from slotlab.testing.cast import Subject
from slotlab.testing.faults import Nonconformance
from slotlab.testing.scenario import Scenario
from slotlab.testing.session import SESSION, SIZES, Cost

MAX_CALLS = 4_000
JUDGED = 10_000  # waiting requests at which calls are judged
STEPS = 9
WARM_UP = 12
SECONDS = 0.03125  # of a step, on the run's clock
STAGE = Scenario(asks=(), slots=32, tokens=512, blocks=4096, size=16)


class Stage:
    """A scheduler with a queue of `waiting` requests; in each step one arrives, some end, and as many start."""

    def __init__(self, subject: Subject, waiting: int) -> None:
        self.scheduler = Scheduler(BlockPool(STAGE.blocks, STAGE.size), **subject.cast(STAGE))
        self.now = 0.0
        for _ in range(waiting):
            self.submit()
        for _ in range(WARM_UP):
            self.step()

    def submit(self) -> None:
        """One more request, unlike its neighbours."""
        i = self.scheduler.arrivals
        output, tenant, due = 2 + i * 7 % 11, "abcdefgh"[i % 8], self.now + i * 31 % 997
        self.scheduler.submit(Request(i, self.now, 8 + i % 7, output, tenant, i % 4, due), self.now, output)

    def step(self) -> None:
        """An arrival, a plan, and what an engine would do."""
        self.submit()
        plan = self.scheduler.plan(self.now)
        self.now += SECONDS
        if plan:
            emitted = [int(req.remaining == n) for req, n in plan.tokens.items()]
            self.scheduler.commit(plan, Result([SECONDS], emitted), self.now)


@dataclass
class Calls:
    """Counts the calls of one step, by the hook of the plugin under which they were made, else by function."""

    hooks: dict[Any, str]  # name by code object
    total: int = 0
    under: Counter[str] = field(default_factory=Counter)
    stack: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        hook = self.hooks.get(frame.f_code) if event in ("call", "return") else None
        if event in ("call", "c_call"):
            self.total += 1
            self.under[hook or (self.stack[-1] if self.stack else frame.f_code.co_qualname)] += 1
        if hook and event == "call":
            self.stack.append(hook)
        elif hook and self.stack:
            self.stack.pop()


def count(stage: Stage, hooks: dict[Any, str]) -> Calls:
    """The calls of a step: the median one of a few."""
    counts = []
    for _ in range(STEPS):
        calls, before = Calls(hooks), sys.getprofile()
        sys.setprofile(calls)
        try:
            stage.step()
        finally:
            sys.setprofile(before)
        counts.append(calls)
    return sorted(counts, key=lambda calls: calls.total)[STEPS // 2]


def timed(stage: Stage) -> float:
    """Median microseconds of a step."""
    times = []
    for _ in range(3 * STEPS):
        start = perf_counter()
        stage.step()
        times.append(perf_counter() - start)
    return 1e6 * median(times)


def check_cost(subject: Subject, max_calls: int) -> None:
    """Fail if a step beside 10,000 waiting requests makes `max_calls` more calls than that of the defaults."""
    cls = class_of(subject.plugin)
    methods = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("__")}
    hooks = {code: name for name, method in methods.items() if hasattr(method, "__code__") for code in codes(method.__code__)}
    default = Subject("", None)
    cost = Cost(subject.name, 0, {})
    for waiting in SIZES:
        if waiting > JUDGED and subject.kind not in ("policy", "modifier"):
            break  # only they may look at the queue in every step, and filling it takes seconds
        stage = Stage(subject, waiting)
        if waiting <= JUDGED:
            calls = count(stage, hooks)
            cost.calls = extra = calls.total - count(Stage(default, waiting), {}).total
            if extra > max_calls:
                raise Nonconformance(subject.name, "cost", slow(calls, extra, waiting, max_calls))
        cost.microseconds[waiting] = timed(stage)
    SESSION.costs.append(cost)


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function, and of the generators and functions inside it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from codes(part)


def slow(calls: Calls, extra: int, waiting: int, allowed: int) -> str:
    """What to say of a step that is too slow."""
    name, made = calls.under.most_common(1)[0]
    most = f"most of them, {made:,}, under {name}"
    return f"a step beside {waiting:,} waiting requests makes {extra:,} calls more than by default; {most}; allowed: {allowed:,}"
