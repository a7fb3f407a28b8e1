"""What plugins answer, checked: a wrong answer fails the run by name, where a guess would falsify it."""

from __future__ import annotations

from operator import index
from typing import TypeVar

from slotlab.errors import PluginError
from slotlab.request import RequestState

T = TypeVar("T")


def expect(plugin: object, hook: str, answer: T, *kinds: type) -> T:
    """`answer`, if it is one of these kinds."""
    if not isinstance(answer, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise PluginError(plugin, None, f"{hook} answered {answer!r}: must be {names}")
    return answer


def whole(plugin: object, hook: str, req: object, answer: int) -> int:
    """`answer` as an int, if it is a whole number of any type."""
    try:
        return index(answer)
    except TypeError:
        raise PluginError(plugin, req, f"{hook} answered {answer!r}: must be a whole number") from None


def moment(plugin: object, hook: str, answer: float) -> float:
    """`answer`, if it is a time: a number, infinity included."""
    if not isinstance(answer, int | float) or answer != answer:
        raise PluginError(plugin, None, f"{hook} answered {answer!r}: must be a time")
    return answer


def claim(plugin: object, hook: str, req: object, allowed: dict[RequestState, None]) -> RequestState:
    """Take a request that a plugin named out of those it may name."""
    if not isinstance(req, RequestState) or req not in allowed:
        raise PluginError(plugin, req, f"{hook} named it twice, or it was not offered")
    del allowed[req]
    return req
