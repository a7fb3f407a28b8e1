"""Every built-in choice keeps its contract, by the same kit that others use."""

from __future__ import annotations

from typing import Any

import pytest

from slotlab import Mode, UserError
from slotlab.testing import (
    check_admission,
    check_batching,
    check_engine,
    check_modifier,
    check_policy,
    check_predictor,
    check_preemption,
    check_workload,
)
from slotlab.testing.fresh import fresh
from slotlab_plugins import collect
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.workloads.explicit import Explicit

# What a choice says of itself beyond the contract. A choice that is not here needs no help.
CLAIMS: dict[tuple[str, str], dict[str, Any]] = {
    ("policies", "fcfs"): {"max_bypass": 0},
    ("modifiers", "tenant_cap"): {"work_conserving": False},
}
OPTIONS: dict[str, Any] = {"explicit": Explicit(lengths=[3, 1, 2], arrivals=[0.0, 0.5, 0.5], tenants=["a", "b", "a"])}
# Small options for small scenarios: the usual ones are too generous to matter there. Each is an instance as a hook offers it.
PRESETS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("policies", "mlfq", {"quantum": 2, "levels": 4, "prefill_speed": 4, "starvation": 8.0}, {}),
    ("policies", "drr", {"quantum": 3}, {}),
    ("policies", "srpt", {"c": 0.3}, {}),
    ("policies", "sjf", {"aging": 1.0}, {}),
    ("policies", "priority", {"aging": 0.5, "displace": True}, {}),
    ("policies", "lpm", {"window": 2}, {}),
    ("batching", "static", {"pad": True}, {}),
    ("batching", "dynamic", {"max_delay": 4.0, "preferred": [1, 2]}, {}),
    ("admission", "rate_limit", {"limit": 1, "window": 5.0}, {}),
    ("admission", "queue_timeout", {"timeout": 2.0}, {}),
    ("admission", "prompt", {"watermark": 0.3}, {}),
    ("preemption", "newest", {"mode": Mode.SWAP}, {}),
    ("preemption", "lowest_rank", {"mode": Mode.SWAP}, {}),
    ("modifiers", "aging", {"after": 3.0}, {}),
    ("modifiers", "bypass_cap", {"cap": 4}, {"max_bypass": 4, "policy": SJF()}),  # a displacing policy may void the bound
    # where every tenant is at its cap it walks through the whole queue
    ("modifiers", "tenant_cap", {"max_running": 1}, {"work_conserving": False, "max_calls": 10**6}),
]
CHECKS = {
    "policies": check_policy,
    "modifiers": check_modifier,
    "batching": check_batching,
    "admission": check_admission,
    "preemption": check_preemption,
    "predictors": check_predictor,
}
CHOICES = [(folder, name) for folder in CHECKS for name in collect(folder)]


@pytest.mark.parametrize(("folder", "name"), CHOICES, ids=lambda value: value)
def test_every_scheduling_choice_conforms(folder, name):
    CHECKS[folder](collect(folder)[name], **CLAIMS.get((folder, name), {}))


@pytest.mark.parametrize(
    ("folder", "name", "options", "claims"), PRESETS, ids=[f"{folder}-{name}" for folder, name, *_ in PRESETS]
)
def test_small_options_conform(folder, name, options, claims):
    choice = collect(folder)[name]
    preset = choice(**options) if isinstance(choice, type) else fresh(choice, **options)
    CHECKS[folder](preset, examples=100, **claims)


def test_no_claim_is_made_for_nobody():
    assert CLAIMS.keys() <= set(CHOICES)


def needs_a_file(workload: Any) -> bool:
    """Whether it cannot be built without one."""
    try:
        fresh(workload)
    except UserError as error:
        return "path" in str(error)
    return False


WORKLOADS = {name: choice for name, choice in (collect("workloads") | OPTIONS).items() if not needs_a_file(choice)}


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_that_needs_no_file_conforms(name):
    check_workload(WORKLOADS[name])


@pytest.mark.parametrize(
    "engine", [Simulated, Simulated(cost="unit"), Simulated(jump=False)], ids=["linear", "unit", "single steps"]
)
def test_the_simulated_engine_conforms(engine):
    check_engine(engine)
