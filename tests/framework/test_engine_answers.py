"""What engines answer is checked as what policies answer is: a wrong one ends the run in the engine's name.

Several tokens per step (speculative decoding) are refused: times, gaps and accounts count one token of a request per step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from slotlab import Arrival, Done, Point, Result, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.errors import PluginError
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_plugins.engines.simulated import Simulated

ARRIVALS = [Arrival(0.0, 3, 9, 6), Arrival(0.0, 2, 9, 4), Arrival(40.0, 2, 9, 2)]


@dataclass
class Faulty(Simulated):
    """Says of its `when`-th step what `change` makes of the truth."""

    cost: str = "unit"
    change: Callable[..., Any] = lambda plan, result: result
    when: int = 3
    real = False

    def begin(self, arrivals, streams):
        super().begin(arrivals, streams)
        self.count = 0

    def submit(self, plan):
        self.count += 1
        result = super().submit(plan).outcome
        return Done(self.change(plan, result) if self.count == self.when else result)


def run(engine: Any, recorder: Recorder | None = None) -> Recorder:
    recorder = recorder or Recorder()
    engine.begin(ARRIVALS, Streams(0))
    scheduler = Scheduler(BlockPool(64, 16))
    serve(source(ARRIVALS, Point()), scheduler, engine, engine.clock(), recorder, lambda id: ARRIVALS[id].output_tokens)
    return recorder


def first(plan: Any) -> Any:
    return next(iter(plan.tokens))


SINGLE = {  # in single steps: the third one is a decode of both
    "several tokens per decode": (
        lambda plan, r: replace(r, emitted=[4, 4]),
        "request 0: it emitted 4 tokens in 1 steps: must be 1",
    ),
    "a dropped token": (lambda plan, r: replace(r, emitted=[1, 0]), "request 1: it emitted 0 tokens in 1 steps: must be 1"),
    "a negative number": (lambda plan, r: replace(r, emitted=[-1, 1]), "request 0: it emitted -1 tokens in 1 steps: must be 1"),
    "a half": (lambda plan, r: replace(r, emitted=[1, 0.5]), "request 1: result answered 0.5: must be a whole number"),
    "a str": (lambda plan, r: replace(r, emitted=["1", 1]), "request 0: result answered '1': must be a whole number"),
    "one too few": (lambda plan, r: replace(r, emitted=[1]), "it told the tokens of 1 requests, and the plan has 2"),
    "one too many": (lambda plan, r: replace(r, emitted=[1, 1, 1]), "it told the tokens of 3 requests, and the plan has 2"),
    "no list of tokens": (lambda plan, r: replace(r, emitted=None), "result has None where it must have a list"),
    "by request": (lambda plan, r: replace(r, emitted={0: 1, 1: 1}), "result has {0: 1, 1: 1} where it must have a list"),
    "no steps": (lambda plan, r: replace(r, durations=[]), "it ran 0 steps where the plan says 1"),
    "no list of durations": (lambda plan, r: replace(r, durations=1.0), "result has 1.0 where it must have a list"),
    "durations in words": (lambda plan, r: replace(r, durations="1"), "result has '1' where it must have a list"),
    "a stranger ends": (lambda plan, r: replace(r, stopped=[7]), "request 7: it ended twice, or without a token in this step"),
    "it ends twice": (
        lambda plan, r: replace(r, stopped=[first(plan)] * 2),
        "request 0: it ended twice, or without a token in this step",
    ),
    "no list of the ended": (lambda plan, r: replace(r, stopped=None), "result has None where it must have a list"),
    "no Result": (lambda plan, r: None, "result answered None: must be Result"),
    **{
        f"a duration of {value!r}": (
            lambda plan, r, value=value: replace(r, durations=[value]),
            f"a step took {value!r} s: must be a number, finite and greater than 0",
        )
        for value in (math.nan, math.inf, -1.0, 0.0, 0, True, "1", None)
    },
}


def blamed(message: str) -> Any:
    return pytest.raises(PluginError, match=f"^{re.escape(f'Faulty: {message}')}$")


@pytest.mark.parametrize(("change", "message"), SINGLE.values(), ids=list(SINGLE))
def test_a_wrong_answer_is_named_and_what_was_measured_is_kept(change, message):
    recorder = Recorder()
    with pytest.raises(PluginError, match=f"^{re.escape(f'Faulty: {message}')}"):
        run(Faulty(change=change, jump=False), recorder)
    assert [recorder.times[id] for id in (0, 1)] == [[1.0, 2.0]] * 2


def test_a_prefill_that_ends_without_its_token_is_named():
    with blamed("request 0: it emitted 0 tokens in 1 steps: must be 1"):
        run(Faulty(when=1, change=lambda plan, r: replace(r, emitted=[0, 1])))


JUMPS = {  # the second plan may be repeated until request 1 ends, after three steps, and 8 times if its cap were the end
    "more steps than tokens are allowed": (9, [9, 9], "request 0: it emitted 10 tokens: must end at max_tokens=9"),
    "more steps than the plan repeats": (2000, [2000] * 2, "it ran 2000 steps where the plan says 1 to "),
    "a token too many for the steps": (3, [3, 4], "request 1: it emitted 4 tokens in 3 steps: must be 3"),
    "a step that begins beside an arrival": (1, None, "its last step began at 41.0, and none may after 40.0"),
}


@pytest.mark.parametrize(("steps", "emitted", "message"), JUMPS.values(), ids=list(JUMPS))
def test_a_wrong_jump_is_named(steps, emitted, message):
    def change(plan, result):
        return Result([1.0] * steps, emitted) if emitted else Result([40.0, 1.0], [2, 2])

    with pytest.raises(PluginError, match=f"^{re.escape(f'Faulty: {message}')}"):
        run(Faulty(when=2, change=change))


def test_whole_numbers_of_any_type_are_taken():
    import numpy as np

    truth = run(Simulated(cost="unit", jump=False))
    found = run(Faulty(jump=False, change=lambda plan, r: Result(np.array([1]), np.array(r.emitted), tuple(r.stopped))))
    assert truth.times == found.times


@pytest.mark.parametrize("call", ["submit", "left", "result", "forecast"])
@pytest.mark.parametrize("error", [RuntimeError("out of luck"), SystemExit(3)])
def test_an_engine_that_raises_is_named(call, error):
    def fail(*args: Any) -> Any:
        raise error

    class Handle:
        forecast = property(fail) if call == "forecast" else None
        result = fail

    engine = Faulty()
    setattr(
        engine,
        "submit" if call in ("result", "forecast") else call,
        fail if call in ("submit", "left") else lambda plan: Handle(),
    )
    with blamed(f"{call} raised {type(error).__name__}: {error}"):
        run(engine)


@pytest.mark.parametrize("answer", [None, 3, Result([1.0], [1, 1])])
def test_an_engine_that_submits_nothing_is_named(answer):
    engine = Faulty()
    engine.submit = lambda plan: answer
    with blamed(f"submit answered {answer!r}: must have `forecast` and `result()`"):
        run(engine)


@dataclass
class Foretelling(Simulated):
    """Foretells each step; `change` makes of the third forecast what then does not come."""

    cost: str = "unit"
    jump: bool = False
    change: Callable[[Result], Result] = lambda result: result

    def begin(self, arrivals, streams):
        super().begin(arrivals, streams)
        self.count = 0

    def submit(self, plan):
        self.count += 1
        result = super().submit(plan).outcome
        told = replace(result, durations=[0.0])
        return Done(self.change(result) if self.count == 3 else result, told)


def test_a_forecast_that_does_not_come_true_is_named():
    run(Foretelling())
    for change in (
        lambda r: replace(r, emitted=[1, 0]),
        lambda r: replace(r, emitted=[2, 1]),
        lambda r: replace(r, stopped=["somebody"]),
    ):
        with pytest.raises(PluginError, match=r"^Foretelling: the forecast of a step was not what came of it"):
            run(Foretelling(change=change))
    with pytest.raises(PluginError, match=r"^Foretelling: a step took nan s"):
        run(Foretelling(change=lambda r: replace(r, durations=[math.nan])))
