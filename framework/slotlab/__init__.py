"""Scheduling policies for LLM serving: who runs, when, and with how much, on a real engine or on a virtual clock."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from slotlab.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The names of `slotlab.api`, loaded at first use: a command must answer signals before the imports take their second."""
    if find_spec(f"{__name__}.{name}"):  # of a module, for which Python asks here first, while others are being loaded
        raise AttributeError(f"{__name__}.{name} is a module that has not been imported")
    public = import_module("slotlab.api")
    if name == "__all__" or name in public.__all__:
        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
