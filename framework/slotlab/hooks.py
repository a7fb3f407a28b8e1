"""The hooks of a plugin. Each returns `{name: dataclass or instance}`; each name becomes a choice of a Hydra group.

A dataclass offers its fields as options; an instance is a preset of them. pluggy finds and announces; it is never called
while requests are served.
"""

from __future__ import annotations

from collections.abc import Mapping

import pluggy

PROJECT = "slotlab"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Choices = Mapping[str, object]


@hookspec
def slotlab_policies() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `policy`: who runs first, and who gives way. Since 0.1."""


@hookspec
def slotlab_batchings() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `batching`: when requests may join, and how many tokens each gets. Since 0.1."""


@hookspec
def slotlab_admissions() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `admission`: who may queue, and how much KV is committed at the start. Since 0.1."""


@hookspec
def slotlab_preemptions() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `preemption`: whom to evict when KV or slots run out, and how. Since 0.1."""


@hookspec
def slotlab_predictors() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `predictor`: the output length that policies may read. Since 0.1."""


@hookspec
def slotlab_modifiers() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `modifier`: what wraps the chosen policy. Several may be chosen, in order. Since 0.1."""


@hookspec
def slotlab_workloads() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `workload`: which requests come, and when. Since 0.1."""


@hookspec
def slotlab_loads() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `load`: the points of the curve. Since 0.1."""


@hookspec
def slotlab_models() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `model`: what a real engine runs. Since 0.1."""


@hookspec
def slotlab_engines() -> Choices:  # type: ignore[empty-body]
    """Choices of the group `engine`: what executes the plans. Since 0.1."""
