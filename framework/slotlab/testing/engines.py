"""The check of engines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from slotlab.engine import Done, Engine, Model
from slotlab.errors import UserError
from slotlab.plan import Plan, Result
from slotlab.request import RequestState
from slotlab.streams import Streams
from slotlab.testing.cast import Subject
from slotlab.testing.draw import scenarios
from slotlab.testing.explore import explore
from slotlab.testing.faults import Nonconformance
from slotlab.testing.fresh import fresh, require_offer, title
from slotlab.testing.scenario import Scenario
from slotlab.testing.trial import Trial
from slotlab.workload import Arrival

NOBODY = Subject("engine", None)


def check_engine(engine: Any, model: Model | None = None, *, examples: int | None = None) -> None:
    """Fail with a Nonconformance unless `engine`, a class or a preset, executes plans as it should; on `model` if it is real.

    It is opened once, with 24 blocks of 4 tokens, and serves scenario after scenario.
    """
    require_offer(engine, Engine)
    opened = fresh(engine, block_size=4, num_blocks=24)
    opened.open(model or Model())
    try:
        strict = StrictEngine(opened, title(engine))
        explore(title(engine), scenarios(), lambda scenario: examine(strict, scenario), examples, Scenario.smaller)
    finally:
        opened.close()


class StrictEngine(Engine):
    """Passes everything on to an engine, and checks what comes back."""

    def __init__(self, engine: Engine, name: str) -> None:
        super().__init__(engine.device, engine.block_size, engine.num_blocks)
        self.engine, self.name = engine, name
        self.durations: list[float] = []

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        self.engine.begin(self.engine.prepare(arrivals), streams)
        self.arrivals, self.durations = arrivals, []

    def content(self, req: Any, block: int) -> Any:
        return self.engine.content(req, block)

    def left(self, req: RequestState) -> None:
        self.engine.left(req)

    def submit(self, plan: Plan) -> Done:
        before = {req: (req.computed, req.emitted, tuple(req.blocks)) for req in plan.tokens}
        try:
            result = self.engine.submit(plan).result()
        except UserError as error:
            if plan.swap_out or plan.swap_in:
                raise
            raise Nonconformance(self.name, "no errors", f"it declines a plan without swaps: {error}") from None
        for req, was in before.items():
            if was != (req.computed, req.emitted, tuple(req.blocks)):
                raise Nonconformance(
                    self.name, "read only", f"it wrote to request {req.id}: entering results is the scheduler's task"
                )
        if wrong := self._wrong(plan, result):
            raise Nonconformance(self.name, "results", wrong)
        self.durations += result.durations
        return Done(result)

    def _wrong(self, plan: Plan, result: Result) -> str:
        """What cannot have come of `plan`; empty if all is well."""
        steps = len(result.durations)
        if not 1 <= steps <= plan.repeat:
            return f"it ran {steps} steps where the plan allows {plan.repeat}"
        if bad := [time for time in result.durations if not 0 < time < math.inf]:
            return f"a step took {bad[0]!r} seconds: must be greater than 0"
        late = plan.time + sum(result.durations[:-1])
        if steps > 1 and late >= plan.until:
            return f"a step begins at {late:g}, and none may at or after {plan.until:g}"
        if len(result.emitted) != len(plan.tokens):
            return f"it tells of {len(result.emitted)} requests where the plan has {len(plan.tokens)}"
        for (req, n), out in zip(plan.tokens.items(), result.emitted, strict=True):
            due = steps if req.remaining == n else 0
            if out != due:
                return f"request {req.id} emitted {out!r} tokens where {due} were due: {n} of {req.remaining} were computed"
            ended, most = req in result.stopped, self.arrivals[req.id].most_output
            if ended != (due > 0 and req.emitted + out == most) or req.emitted + out > most:
                return f"request {req.id} has emitted {req.emitted + out} of {most} tokens and {'ended' if ended else 'goes on'}"
        if strangers := [req.id for req in result.stopped if req not in plan.tokens]:
            return f"request {strangers[0]} ended without being in the plan"
        return ""


def examine(engine: StrictEngine, scenario: Scenario) -> None:
    """Serve a part of the scenario, then begin anew and serve it twice: what went before must not show."""
    scenario = replace(scenario, blocks=engine.num_blocks, size=engine.block_size)
    serve(engine, scenario, most_steps=3)
    first, second = serve(engine, scenario), serve(engine, scenario)
    if first != second:
        raise Nonconformance(engine.name, "begin", "a scenario that is served again after `begin` goes otherwise", scenario)


def serve(engine: StrictEngine, scenario: Scenario, most_steps: int | None = None) -> list[Any]:
    """What came of it; of a real engine without the times, which are wall time."""
    trial = Trial(engine.name, scenario, NOBODY.cast(scenario), engine).serve(most_steps)
    if engine.engine.real:
        return [(req.status, req.emitted) for req in trial.states]
    return [*trial.outcome(), *engine.durations]
