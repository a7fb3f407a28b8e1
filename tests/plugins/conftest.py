"""Small runs of built-in plugins on a virtual clock."""

from __future__ import annotations

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


@pytest.fixture(scope="session")
def run() -> Callable[..., Recorder]:
    """Serve arrivals: see `run_units`."""
    return run_units
