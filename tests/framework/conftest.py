"""A run on a virtual clock whose every step is checked: the books, the caps, the tokens, and what is in the KV cache."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from slotlab import Arrival, Batching, Done, Plan, Point, Request, RequestState, Result, Status, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.plan import split_work
from slotlab.record.recorder import Recorder
from slotlab.record.seats import Seats
from slotlab.record.tables import requests_table, slots_table, steps_table
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_plugins.engines.simulated import Simulated


class CheckedScheduler(Scheduler):
    """Asserts after every operation that nothing was lost and no cap was exceeded; keeps what the plans came to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans: list[dict[int, int]] = []  # tokens by request id
        self.work = [0, 0, 0]  # tokens planned: computed for the first time, again, decoded

    def submit(self, req: Request, now: float, truth: int | None = None) -> RequestState:
        state = super().submit(req, now, truth)
        self.books.check()
        return state

    def plan(self, now: float) -> Plan:
        plan, batching = super().plan(now), self.plugins.batching
        self.books.check()
        assert len(plan.seated) <= batching.max_num_seqs, "more slots than there are"
        assert plan.tokens.keys() <= set(plan.seated), "a token without a slot"
        assert sum(plan.tokens.values()) <= batching.max_num_batched_tokens, "more tokens than the budget"
        for req, n in plan.tokens.items():
            assert 1 <= n <= req.remaining
            assert req.computed + n <= req.capacity, "a token without a block"
        assert len(plan.seated) + len(plan.paused) == plan.running == len(self.books.running)
        assert plan or not plan.started
        return plan

    def commit(self, plan: Plan, result: Result, now: float) -> None:
        self.plans += [{req.id: n for req, n in plan.tokens.items()}] * len(result.durations)
        parts = [split_work(req, n) for req, n in plan.tokens.items()]
        self.work = [old + sum(new) * len(result.durations) for old, new in zip(self.work, zip(*parts, strict=True), strict=True)]
        super().commit(plan, result, now)
        self.books.check()

    def abort(self, req: RequestState) -> None:
        super().abort(req)
        self.books.check()


@dataclass
class CheckedEngine(Simulated):
    """Keeps, with `content`, what each cache slot holds, and reads all of a request's K and V back before it emits."""

    content: bool = False
    emitted: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # positions of output tokens
    cache: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def submit(self, plan: Plan) -> Done:
        done = super().submit(plan)
        if self.content:
            self._write(plan)
        for req, out in zip(plan.tokens, done.outcome.emitted, strict=True):
            self.emitted[req.id] += range(req.emitted, req.emitted + out)
        return done

    def _write(self, plan: Plan) -> None:
        places = {req: [(block, i) for block in req.blocks for i in range(self.block_size)] for req in plan.tokens}
        for req, n in plan.tokens.items():
            for position in range(req.computed, req.computed + n):
                self.cache[places[req][position]] = req.id, position
        for req, n in plan.tokens.items():
            for position in range(req.computed + n):
                assert self.cache[places[req][position]] == (req.id, position), "the cache holds somebody else's token"


@dataclass
class Served:
    """What came of a run."""

    recorder: Recorder
    scheduler: CheckedScheduler
    engine: CheckedEngine

    @property
    def states(self) -> list[RequestState]:
        """The requests, in the order of submission."""
        return self.recorder.states

    @property
    def plans(self) -> list[dict[int, int]]:
        """Tokens by request id, one per step."""
        return self.scheduler.plans

    @property
    def starts(self) -> list[int]:
        """Ids in the order of their first start."""
        done = [req for req in self.states if req.started is not None]
        return [req.id for req in sorted(done, key=lambda req: (req.started, self.first_step(req.id)))]

    def first_step(self, id: int) -> int:
        """The number of the step in which a request first computes."""
        return next(i for i, plan in enumerate(self.plans) if id in plan)

    def finish(self) -> list[float]:
        """When each request emitted its last token."""
        return [self.recorder.times[req.id][-1] for req in self.states]

    def tables(self) -> dict[str, pa.Table]:
        """What a run folder holds of it, except the wall-clock facts."""
        return {
            "requests": requests_table(self.recorder),
            "steps": steps_table(self.recorder),
            "slots": slots_table(self.recorder),
        }


def serve_checked(
    arrivals: Sequence[Arrival],
    *,
    blocks: int = 64,
    size: int = 16,
    point: Point | None = None,
    cost: str = "unit",
    jump: bool = True,
    content: bool = False,
    **scheduler: Any,
) -> Served:
    """Serve `arrivals` to the end with the given plugins and caps of the scheduler."""
    engine = CheckedEngine(block_size=size, num_blocks=blocks, cost=cost, jump=jump and not content, content=content)
    scheduler.setdefault("batching", Batching(4, 512))
    core = CheckedScheduler(BlockPool(blocks, size), **scheduler)
    recorder = Recorder(block_size=size, seats=Seats(core.plugins.batching.keeps_slots, chart=True))
    engine.begin(arrivals, Streams(0))
    stream = source(arrivals, point or Point())
    serve(stream, core, engine, engine.clock(), recorder, lambda id: arrivals[id].output_tokens)
    return Served(recorder, core, engine)


@pytest.fixture(scope="session")
def run() -> Callable[..., Served]:
    """Serve arrivals: see `serve_checked`."""
    return serve_checked


def make_arrivals(
    lengths: Sequence[int],
    prompts: Sequence[int] | int = 1,
    times: Sequence[float] | float = 0.0,
    tenants: Sequence[str] | str = "default",
    priorities: Sequence[int] | int = 0,
    max_tokens: int | None = None,
    weights: dict[str, float] | None = None,
) -> list[Arrival]:
    """One arrival per output length; the cap is the length itself unless `max_tokens` is given."""

    def at(column: Any, i: int) -> Any:
        return column[i] if isinstance(column, list | tuple) else column

    rows = []
    for i, n in enumerate(lengths):
        tenant = at(tenants, i)
        weight = (weights or {}).get(tenant, 1.0)
        rows.append(Arrival(at(times, i), at(prompts, i), max_tokens or n, n, tenant, priority=at(priorities, i), weight=weight))
    return rows


@pytest.fixture(scope="session")
def arrive() -> Callable[..., list[Arrival]]:
    """Write arrivals down: see `make_arrivals`."""
    return make_arrivals


def random_arrivals(seed: int, n: int, longest_prompt: int, longest_output: int, rate: float) -> list[Arrival]:
    """Bursts of requests of three tenants, four priorities, and caps that may be far above the true length."""
    rng, time, rows = random.Random(seed), 0.0, []
    for _ in range(n):
        time += rng.expovariate(rate) if rng.random() < 0.7 else 0.0
        length = rng.randint(1, longest_output)
        cap = rng.choice([length, longest_output, 2 * longest_output])
        tenant = rng.choice("aabc")
        prompt, priority = rng.randint(1, longest_prompt), rng.randint(0, 3)
        rows.append(Arrival(time, prompt, cap, length, tenant, priority=priority, weight={"a": 3.0}.get(tenant, 1.0)))
    return rows


@pytest.fixture(scope="session")
def draw_arrivals() -> Callable[..., list[Arrival]]:
    """Draw arrivals: see `random_arrivals`."""
    return random_arrivals


@dataclass
class Bench:
    """A scheduler and a simulated engine that a test drives by hand, one step at a time."""

    scheduler: CheckedScheduler
    now: float = 0.0

    def submit(self, prompt: int = 1, max_tokens: int = 8, **other: Any) -> RequestState:
        """Submit a request now."""
        return self.scheduler.submit(Request(self.scheduler.arrivals, self.now, prompt, max_tokens, **other), self.now)

    def plan(self) -> Plan:
        """Plan a step."""
        return self.scheduler.plan(self.now)

    def step(self, *stop: RequestState) -> Plan:
        """Plan a step and execute it; those in `stop` end with it."""
        plan = self.plan()
        self.execute(plan, *stop)
        return plan

    def execute(self, plan: Plan, *stop: RequestState) -> None:
        """Execute a plan; whoever has computed all that it knows emits a token."""
        self.now += 1.0
        emitted = [int(req.remaining == n) for req, n in plan.tokens.items()]
        self.scheduler.commit(plan, Result([1.0], emitted, list(stop)), self.now)

    def run_dry(self) -> list[RequestState]:
        """Go on until everybody has left by its cap."""
        for _ in range(10_000):
            if not self.scheduler.unfinished:
                return self.scheduler.departed()
            if plan := self.plan():
                self.execute(plan)
            else:
                self.now = plan.until
        raise AssertionError("still not finished after 10,000 steps")

    @property
    def free(self) -> int:
        """KV blocks that nobody holds."""
        return self.scheduler.view.free_blocks


@pytest.fixture(scope="session")
def bench() -> Callable[..., Bench]:
    """A bench over `blocks` blocks of `size` tokens, with the given plugins and caps of the scheduler."""

    def make(blocks: int = 64, size: int = 1, **scheduler: Any) -> Bench:
        scheduler.setdefault("batching", Batching(4, 512))
        return Bench(CheckedScheduler(BlockPool(blocks, size), **scheduler))

    return make


ENDED = {Status.FINISHED, Status.REJECTED, Status.ABORTED}
