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
from slotlab.core.prefix import Content, PrefixPool
from slotlab.record.recorder import Recorder
from slotlab.record.seats import Seats
from slotlab.record.tables import requests_table, slots_table, steps_table
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.testing.checked import CheckedScheduler
from slotlab_plugins.engines.simulated import Simulated


@dataclass
class CheckedEngine(Simulated):
    """Keeps, with `remembers`, what each cache slot holds, and reads all of a request's K and V back before it emits."""

    remembers: bool = False
    emitted: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # positions of output tokens
    cache: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    host: dict[int, list[tuple[int, int] | None]] = field(default_factory=dict)  # what was swapped out, by request

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        super().begin(arrivals, streams)
        self.arrivals = arrivals

    def token(self, req: RequestState, position: int) -> tuple[int, int]:
        """What stands for a token: a prefix group's own, or the request's own."""
        arrival = self.arrivals[req.id]
        shared = arrival.prefix_group is not None and position < arrival.prefix_tokens
        return (-1 - arrival.prefix_group if shared else req.id), position

    def submit(self, plan: Plan) -> Done:
        done = super().submit(plan)
        if self.remembers:
            self._write(plan)
        for req, out in zip(plan.tokens, done.outcome.emitted, strict=True):
            self.emitted[req.id] += range(req.emitted, req.emitted + out)
        return done

    def _write(self, plan: Plan) -> None:
        for req, blocks in plan.swap_out.items():
            self.host[req.id] = [self.cache.get(place) for place in self.places(blocks)]
        for req, blocks in plan.swap_in.items():
            self.cache |= zip(self.places(blocks), self.host.pop(req.id), strict=True)
        for req, n in plan.tokens.items():
            places = self.places(req.blocks)
            for position in range(req.computed, req.computed + n):
                self.cache[places[position]] = self.token(req, position)
        for req, n in plan.tokens.items():
            places = self.places(req.blocks)
            for position in range(req.computed + n):
                assert self.cache[places[position]] == self.token(req, position), "the cache holds somebody else's token"

    def places(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """The cache slots of these blocks."""
        return [(block, i) for block in blocks for i in range(self.block_size)]


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
    prefix_cache: bool = False,
    **scheduler: Any,
) -> Served:
    """Serve `arrivals` to the end with the given plugins and caps of the scheduler."""
    engine = CheckedEngine(block_size=size, num_blocks=blocks, cost=cost, jump=jump and not content, remembers=content)
    scheduler.setdefault("batching", Batching(4, 512))
    pool = PrefixPool(blocks, size, engine.content) if prefix_cache else BlockPool(blocks, size)
    core = CheckedScheduler(pool, **scheduler)
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
    """Bursts of requests of three tenants, four priorities, two prefixes, and caps that may be far above the true length."""
    rng, time, rows = random.Random(seed), 0.0, []
    for _ in range(n):
        time += rng.expovariate(rate) if rng.random() < 0.7 else 0.0
        length = rng.randint(1, longest_output)
        cap = rng.choice([length, longest_output, 2 * longest_output])
        tenant = rng.choice("aabc")
        prompt, priority = rng.randint(1, longest_prompt), rng.randint(0, 3)
        prefix = {"prefix_group": rng.randint(0, 1), "prefix_tokens": rng.randint(0, prompt - 1)}
        deadline, weight = rng.choice([None, 0.5, 2.0, 10.0]), {"a": 3.0}.get(tenant, 1.0)
        rows.append(Arrival(time, prompt, cap, length, tenant, priority, deadline, weight, **prefix))
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
    """A bench over `blocks` blocks of `size` tokens, with the given plugins and caps of the scheduler.

    `content`: what fills a block, as in `PrefixPool`; without it there is no prefix cache.
    """

    def make(blocks: int = 64, size: int = 1, content: Content | None = None, **scheduler: Any) -> Bench:
        scheduler.setdefault("batching", Batching(4, 512))
        pool = PrefixPool(blocks, size, content) if content else BlockPool(blocks, size)
        return Bench(CheckedScheduler(pool, **scheduler))

    return make


ENDED = {Status.FINISHED, Status.REJECTED, Status.ABORTED}
