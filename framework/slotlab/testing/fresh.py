"""Copies of the plugin under test: what a hook offers is a class or a preset, and every run gets a new object."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from slotlab.lab.offers import check_offer, class_of
from slotlab.testing.faults import Nonconformance


def fresh(plugin: Any, **changes: Any) -> Any:
    """A new object with the options of `plugin`, a dataclass or an instance of one, and these `changes`."""
    if isinstance(plugin, type):
        return plugin(**changes)
    options = {f.name: deepcopy(getattr(plugin, f.name)) for f in fields(plugin) if f.init}
    return type(plugin)(**(options | changes))


def title(plugin: Any) -> str:
    """How messages call it: its class, and the options that a preset sets."""
    cls = class_of(plugin)
    if isinstance(plugin, type) or not is_dataclass(plugin):
        return cls.__name__
    usual = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(plugin)}
    chosen = (f"{name}={value}" for name in usual if (value := getattr(plugin, name)) != usual[name])
    options = ", ".join(chosen)
    return f"{cls.__name__}({options})" if options else cls.__name__


def require_offer(plugin: Any, base: type) -> None:
    """Fail unless a hook may offer it."""
    if refusal := check_offer("plugin", plugin, base):
        raise Nonconformance(title(plugin), "offer", refusal)
    if "<locals>" in class_of(plugin).__qualname__:
        raise Nonconformance(
            title(plugin),
            "offer",
            f"{class_of(plugin).__qualname__} is defined inside a function, and the kit must import it in a new process: "
            "move the class to the top level of its module",
        )
