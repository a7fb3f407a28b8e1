"""What an engine says of a step, checked: a wrong answer ends the run in the engine's name, where a guess would falsify it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from operator import attrgetter
from typing import Any, TypeVar

from slotlab.core.answers import expect, whole
from slotlab.engine import Engine, Handle
from slotlab.errors import PluginError, UserError, told
from slotlab.plan import Plan, Result
from slotlab.request import RequestState

T = TypeVar("T")


def ask(engine: Engine, call: str, method: Callable[..., T], *arguments: Any) -> T:
    """What `method` answers; whatever it raises is the engine's. No context manager, for it would cost more than the checks."""
    try:
        return method(*arguments)
    except (PluginError, UserError):
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(engine, None, f"{call} raised {told(error)}") from error


def submit(engine: Engine, plan: Plan) -> Handle:
    """Have `plan` executed."""
    handle = ask(engine, "submit", engine.submit, plan)
    if not callable(getattr(handle, "result", None)):
        raise PluginError(engine, None, f"submit answered {handle!r}: must have `forecast` and `result()`")
    return handle


def forecast(engine: Engine, plan: Plan, handle: Handle) -> Result | None:
    """What will come of a step that is under way, but for its duration; None: nobody knows."""
    answer = ask(engine, "forecast", attrgetter("forecast"), handle)
    if answer is None:
        return None
    emitted = tokens(engine, plan, 1, expect(engine, "forecast", answer, Result))
    return Result([0.0], emitted, ended(engine, plan, emitted, answer))


def outcome(engine: Engine, plan: Plan, handle: Handle) -> Result:
    """What came of a step that nobody could foretell."""
    answer = wait(engine, handle)
    durations = seconds(engine, answer, most=1 if engine.real else plan.repeat)
    if len(durations) > 1 and (last := plan.time + sum(durations[:-1])) > plan.until + 1e-9 * abs(last):
        raise PluginError(engine, None, f"its last step began at {last}, and none may after {plan.until}")
    emitted = tokens(engine, plan, len(durations), answer)
    return Result(durations, emitted, ended(engine, plan, emitted, answer))


def arrived(engine: Engine, handle: Handle, foretold: Result) -> Result:
    """What came of a step that was foretold."""
    answer = wait(engine, handle)
    durations = seconds(engine, answer, most=1)
    if listed(engine, answer.emitted) != foretold.emitted or {*listed(engine, answer.stopped)} != {*foretold.stopped}:
        raise PluginError(engine, None, "the forecast of a step was not what came of it: other tokens, or other requests ended")
    return Result(durations, foretold.emitted, foretold.stopped)


def wait(engine: Engine, handle: Handle) -> Result:
    """The answer to a step."""
    return expect(engine, "result", ask(engine, "result", handle.result), Result)


def seconds(engine: Engine, answer: Result, most: int) -> list[float]:
    """The durations of one to `most` steps."""
    durations = listed(engine, answer.durations)
    if not 1 <= len(durations) <= most:
        raise PluginError(
            engine, None, f"it ran {len(durations)} steps where the plan says {'1' if most == 1 else f'1 to {most}'}"
        )
    if {*map(type, durations)} == {float} and min(durations) > 0 and sum(durations) < math.inf:
        return durations
    for duration in durations:
        if not isinstance(duration, Real) or isinstance(duration, bool) or not 0 < float(duration) < math.inf:
            raise PluginError(engine, None, f"a step took {duration!r} s: must be a number, finite and greater than 0")
    return [float(duration) for duration in durations]


def tokens(engine: Engine, plan: Plan, steps: int, answer: Result) -> list[int]:
    """Tokens that each request of the plan emitted: one in each step in which all its known tokens are computed."""
    emitted = listed(engine, answer.emitted)
    # most steps are no more than decodes: there is no time for a look at each request
    due = [steps] * len(plan.tokens) if plan.decodes else [steps * (req.remaining == n) for req, n in plan.tokens.items()]
    if len(emitted) != len(due):
        raise PluginError(engine, None, f"it told the tokens of {len(emitted)} requests, and the plan has {len(due)}")
    if emitted != due:
        for req, found, right in zip(plan.tokens, emitted, due, strict=True):
            if isinstance(found, bool) or whole(engine, "result", req, found) != right:
                raise PluginError(engine, req, f"it emitted {found!r} tokens in {steps} steps: must be {right}")
    if steps > 1 and (over := next((req for req in plan.tokens if req.emitted + steps > req.max_tokens), None)):
        raise PluginError(engine, over, f"it emitted {over.emitted + steps} tokens: must end at max_tokens={over.max_tokens}")
    return due


def ended(engine: Engine, plan: Plan, emitted: list[int], answer: Result) -> list[RequestState]:
    """Those who end with the step: each once, and with a token."""
    stopped = listed(engine, answer.stopped)
    if stopped:
        may = {id(req) for req, out in zip(plan.tokens, emitted, strict=True) if out}
        for req in stopped:
            if id(req) not in may:
                raise PluginError(engine, req, "it ended twice, or without a token in this step")
            may.remove(id(req))
    return stopped


def listed(engine: Engine, values: Iterable[Any]) -> list[Any]:
    """A field of an answer, as a list."""
    if type(values) is list:  # as it nearly always is; the rest takes longer than all other checks
        return values
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise PluginError(engine, None, f"result has {values!r} where it must have a list")
    return list(values)
