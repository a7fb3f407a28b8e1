"""What engines, models, workloads and loads answer outside the loop, checked: a wrong answer is named, with its plugin."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from slotlab.arrivals import number
from slotlab.clock import Clock
from slotlab.core.answers import expect, whole
from slotlab.core.outcome import ask
from slotlab.engine import Engine, Model
from slotlab.errors import PluginError, UserError, blame
from slotlab.request import RequestView
from slotlab.streams import Streams
from slotlab.workload import Arrival, Bench, Load, Point


def opened(engine: Engine, model: Model, seqs: int, tokens: int) -> dict[str, str]:
    """Open the engine for steps of so many requests and tokens; the facts that it gives for the record."""
    ask(engine, "caps", engine.caps, seqs, tokens)
    with blame(engine, model):
        answer = engine.open(model)
    return facts(engine, "open", answer)


def facts(plugin: object, hook: str, answer: Any) -> dict[str, str]:
    """Words by name."""
    if not isinstance(answer, Mapping) or not all(isinstance(word, str) for pair in answer.items() for word in pair):
        raise PluginError(plugin, None, f"{hook} answered {answer!r}: must be a mapping of str to str")
    return dict(answer)


def prepared(engine: Engine, drawn: Sequence[Arrival]) -> list[Arrival]:
    """The arrivals as the engine will get them."""
    with blame(engine):
        arrivals = list(expect(engine, "prepare", engine.prepare(drawn), Iterable))
    if len(arrivals) != len(drawn) or not all(isinstance(arrival, Arrival) for arrival in arrivals):
        raise PluginError(engine, None, f"prepare made {len(arrivals)} arrivals of {len(drawn)}: must be an Arrival for each")
    return arrivals


def begun(engine: Engine, arrivals: Sequence[Arrival], streams: Streams) -> Clock:
    """Have the engine forget everything; its clock, at 0."""
    ask(engine, "begin", engine.begin, arrivals, streams)
    clock = ask(engine, "clock", engine.clock)
    now = ask(engine, "clock", lambda: clock.now())
    if not number(now):
        raise PluginError(engine, None, f"clock says that it is {now!r}: must be a finite number of seconds")
    return clock


def context_of(model: Model) -> int:
    """Most tokens that a model attends to."""
    with blame(model):
        answer = model.max_context()
    context = whole(model, "max_context", None, answer)
    if context < 1:
        raise PluginError(model, None, f"max_context answered {context}: must be at least 1")
    return context


def contents(engine: Engine) -> Callable[[RequestView, int], Hashable]:
    """`Engine.content`, whose answers can be looked up."""

    def content(req: RequestView, block: int) -> Hashable:
        answer = ask(engine, "content", engine.content, req, block)
        ask(engine, "content", hash, answer)
        return answer

    return content


def draws(load: Load) -> int:
    """Most repeats of a point."""
    with blame(load):
        answer = load.draws
    count = whole(load, "draws", None, answer)
    if count < 1:
        raise PluginError(load, None, f"draws answered {count}: must be at least 1")
    return count


def points(load: Load, bench: Bench, name: str) -> tuple[list[Point], int]:
    """The points of a load, each once, each one that can be served; and which one stands for the curve."""
    with blame(load):
        found = list(expect(load, "points", load.points(bench), Iterable))
    if not found:
        raise UserError(f"load={name}: it has no points")
    for i, point in enumerate(found):
        if wrong := fault(point) or ("must be there once" if point in found[:i] else None):
            raise PluginError(load, None, f"points answered {point!r}: {wrong}")
    with blame(load):
        answer = load.ref_index(found)
    ref = whole(load, "ref_index", None, answer)
    if not 0 <= ref < len(found):
        raise PluginError(load, None, f"ref_index answered {ref}: must be from 0 to {len(found) - 1}")
    return found, ref


def fault(point: Any) -> str | None:
    """What is wrong with a load point."""
    if not isinstance(point, Point):
        return "must be a Point"
    if not (point.rate is None or (number(point.rate) and point.rate > 0)):
        return "rate must be finite and greater than 0"
    if not (point.concurrency is None or (type(point.concurrency) is int and point.concurrency >= 1)):
        return "concurrency must be a whole number of at least 1"
    if point.rate is not None and point.concurrency is not None:
        return "must have a rate or a concurrency, not both"
    return None if number(point.think) and point.think >= 0 else "think must be finite and at least 0"
