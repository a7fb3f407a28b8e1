"""The built-in choices. They come in by the same door as everybody else's: one entry point, the same hooks.

A file in one of these folders offers what it has in `CHOICES`; nothing else needs to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules

from slotlab import hookimpl

Choices = Mapping[str, object]


def collect(folder: str) -> Choices:
    """The choices of all files in `folder`."""
    package = import_module(f"{__name__}.{folder}")
    modules = (import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__))
    return {name: choice for module in modules for name, choice in module.CHOICES.items()}


@hookimpl
def slotlab_policies() -> Choices:
    return collect("policies")


@hookimpl
def slotlab_batchings() -> Choices:
    return collect("batching")


@hookimpl
def slotlab_admissions() -> Choices:
    return collect("admission")


@hookimpl
def slotlab_preemptions() -> Choices:
    return collect("preemption")


@hookimpl
def slotlab_predictors() -> Choices:
    return collect("predictors")


@hookimpl
def slotlab_modifiers() -> Choices:
    return collect("modifiers")


@hookimpl
def slotlab_workloads() -> Choices:
    return collect("workloads")


@hookimpl
def slotlab_loads() -> Choices:
    return collect("loads")


@hookimpl
def slotlab_models() -> Choices:
    return collect("models")


@hookimpl
def slotlab_engines() -> Choices:
    return collect("engines")
