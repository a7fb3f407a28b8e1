"""What can go wrong, by whose fault."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType

from slotlab.names import brief, shown
from slotlab.signals import Stopped

CHARS = 1000  # of what somebody else's code has to say


class UserError(ValueError):
    """What the user asked cannot be done. The message is one line: the value, the place, the allowed values."""


class PluginError(RuntimeError):
    """A plugin broke its contract; the message names it and the request (or what it took for one)."""

    def __init__(self, plugin: object, req: object, what: str) -> None:
        where = "" if req is None else f"request {getattr(req, 'id', req)}: "
        super().__init__(f"{type(plugin).__name__}: {where}{what}")


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """For the `__post_init__` of a plugin: refuse an option that is out of range."""
    finite = not isinstance(value, float) or math.isfinite(value)
    if not (ok and finite):
        raise UserError(f"{name}={brief(value)}: must be {'' if finite else 'finite, and '}{allowed}")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """The end of an error message about an unknown name: what was perhaps meant, and what there is."""
    names = sorted(set(allowed))
    close = difflib.get_close_matches(name, names, n=2)
    return (f"did you mean {' or '.join(close)}? " if close else "") + f"there is: {', '.join(names) or 'nothing'}"


def told(thing: object) -> str:
    """Somebody else's `thing` in one line, whatever its own methods do: an exception as `Kind: message`, all else as its repr."""
    try:
        text = f"{type(thing).__name__}: {thing}" if isinstance(thing, BaseException) else repr(thing)
    except BaseException:
        name = object.__repr__(thing)[1:].partition(" object at ")[0]  # asks nothing of it
        text = f"{name}, which raises when it is printed"
    return shown(" ".join(text.split()))[:CHARS]


@contextmanager
def guarded(report: Callable[[str], None]) -> Iterator[None]:
    """Whatever somebody else's code raises in the block is reported in one line and goes no further, but for a signal."""
    try:
        yield
    except Stopped:
        raise
    except BaseException as error:  # KeyboardInterrupt, too: signals are noted, and raise nothing of that kind
        report(told(error))


def culprit(trace: TracebackType | None, plugins: Iterable[object]) -> tuple[object, str] | None:
    """The plugin that was running, and which of its methods had been called from outside; None if no plugin was."""
    found, suspects = None, list(plugins)
    while trace:
        frame, trace = trace.tb_frame, trace.tb_next
        owner = frame.f_locals.get("self")
        if any(owner is plugin for plugin in suspects) and not (found and found[0] is owner):
            method = re.sub(r"(\.<locals>\.[^.]*)+$", "", frame.f_code.co_qualname)  # of a generator or lambda: its maker
            found = owner, method.rpartition(".")[2]
    return found


@contextmanager
def blame(*plugins: object) -> Iterator[None]:
    """An exception out of a method of one of these fails the run with the plugin's name."""
    try:
        yield
    except (PluginError, UserError, Stopped, KeyboardInterrupt):
        raise
    except BaseException as error:
        if found := culprit(error.__traceback__, plugins):
            raise PluginError(found[0], None, f"{found[1]} raised {told(error)}") from error
        raise
