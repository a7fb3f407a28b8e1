"""Small runs of built-in plugins on a virtual clock."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from slotlab import Arrival, Plan, Point, Result, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.predictors.basic import Oracle


class Watched(Scheduler):
    """Calls `watch` after each step, with the plan and its result; checks its books."""

    watch: Callable[[Plan, Result], None] = staticmethod(lambda plan, result: None)

    def commit(self, plan: Plan, result: Result, now: float) -> None:
        super().commit(plan, result, now)
        self.books.check()
        self.watch(plan, result)


def run_units(arrivals: Sequence[Arrival], policy: Any, slots: int = 1, blocks: int = 4096, **options: Any) -> Recorder:
    """Serve `arrivals` in steps of one time unit, with true lengths as predictions, on blocks of one token."""
    jump, point, watch = options.pop("jump", True), options.pop("point", Point()), options.pop("watch", None)
    options = {"batching": Continuous(slots, 512), "predictor": Oracle(), **options}
    engine, recorder = Simulated(cost="unit", jump=jump, num_blocks=blocks, block_size=1), Recorder(block_size=1)
    scheduler = Watched(BlockPool(blocks, 1), policy, **options)
    if watch:
        scheduler.watch = watch
    engine.begin(arrivals, Streams(0))
    serve(source(arrivals, point), scheduler, engine, engine.clock(), recorder, lambda id: arrivals[id].output_tokens)
    return recorder


def measure_gap(policy: Any, seed: int, slots: int, tenants: int, jump: bool) -> tuple[list[tuple[int, int]], int]:
    """Each tenant's usual prompt and output, and the largest difference of service (1 x prompt + 2 x output) between two."""
    rng = random.Random(seed)
    shapes = [(rng.choice([1, 3, 60]), rng.choice([1, 4, 50])) for _ in range(tenants)]
    arrivals = []
    for i in range(40 * tenants):
        prompt, output = shapes[i % tenants]
        if rng.random() < 0.3:
            prompt, output = rng.randint(1, prompt), rng.randint(1, output)
        arrivals.append(Arrival(0.0, prompt, output, output, tenant=str(i % tenants)))
    service, queued, gaps = Counter({str(i): 0 for i in range(tenants)}), Counter(arrival.tenant for arrival in arrivals), [0]

    def watch(plan: Plan, result: Result) -> None:
        for req, out in zip(plan.tokens, result.emitted, strict=True):
            service[req.tenant] += 2 * out
            if req.emitted == out:  # its first step
                service[req.tenant] += req.prompt_tokens
                queued[req.tenant] -= 1
        if all(queued[tenant] for tenant in service):
            gaps.append(max(abs(service[f] - service[g]) for f, g in itertools.combinations(service, 2)))

    run_units(arrivals, policy, slots=slots, jump=jump, watch=watch, batching=Continuous(slots, 10**6))
    return shapes, max(gaps)


@pytest.fixture(scope="session")
def backlogged_gap() -> Callable[..., tuple[list[tuple[int, int]], int]]:
    """Serve tenants that all have a backlog from start to end, as different as can be: see `measure_gap`."""
    return measure_gap


@pytest.fixture(scope="session")
def run() -> Callable[..., Recorder]:
    """Serve arrivals: see `run_units`."""
    return run_units
