"""Values to compare: what an object holds at one moment."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

from slotlab.core.blocks import BlockPool
from slotlab.request import RequestState
from slotlab.view import View
from slotlab.waiting import Waiting


def freeze(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """`value` with everything in it, as a value that later changes do not reach. Requests count as their ids."""
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum):
        return value
    if isinstance(value, RequestState):
        return "request", value.id
    if isinstance(value, View | Waiting | BlockPool | type) or callable(value):
        return type(value).__name__, getattr(value, "__qualname__", "")
    if id(value) in seen:
        return "..."
    inner = (*seen, id(value))
    if isinstance(value, Mapping):
        return type(value).__name__, tuple((freeze(key, inner), freeze(item, inner)) for key, item in value.items())
    if isinstance(value, list | tuple | deque):
        return type(value).__name__, tuple(freeze(item, inner) for item in value)
    if isinstance(value, set | frozenset):
        return "set", frozenset(freeze(item, inner) for item in value)
    if hasattr(value, "__dict__"):
        return type(value).__qualname__, freeze(vars(value), inner)
    try:
        return type(value).__qualname__, pickle.dumps(value)
    except Exception:  # a generator, a lock: nothing that can be compared
        return type(value).__qualname__


def state(plugin: Any) -> dict[str, Any]:
    """What a plugin holds, by attribute."""
    return {name: freeze(value) for name, value in getattr(plugin, "__dict__", {}).items()}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The first attribute that differs; empty if none does."""
    for name in [*before, *(name for name in after if name not in before)]:
        if before.get(name) != after.get(name):
            return f"{name}: {plain(before.get(name))} became {plain(after.get(name))}"
    return ""


def plain(value: Any) -> str:
    """A frozen value, short enough for a line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def atoms(value: Any) -> int:
    """How many single values a frozen value holds."""
    if isinstance(value, tuple | frozenset):
        return sum(map(atoms, value))
    return 1
