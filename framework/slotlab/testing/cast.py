"""The plugin under test among its companions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slotlab.errors import UserError
from slotlab.kinds import Modifier
from slotlab.testing.companions import ADMISSIONS, BATCHINGS, POLICIES, PREDICTORS, PREEMPTIONS
from slotlab.testing.fresh import fresh, title
from slotlab.testing.scenario import Scenario


@dataclass(frozen=True)
class Subject:
    """The plugin under test, the place it takes in a scheduler, and companions that it insists on."""

    kind: str
    plugin: Any
    pinned: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """How messages call it."""
        return title(self.plugin)

    def cast(self, scenario: Scenario) -> dict[str, Any]:
        """New plugins, as keyword arguments of a scheduler."""
        plugins: dict[str, Any] = {
            "policy": POLICIES[scenario.policy](),
            "batching": BATCHINGS[scenario.batching](scenario.slots, scenario.tokens),
            "admission": ADMISSIONS[scenario.admission](),
            "preemption": PREEMPTIONS[scenario.preemption](),
            "predictor": PREDICTORS[scenario.predictor](),
        }
        for kind, plugin in {**self.pinned, self.kind: self.plugin}.items():
            if kind == "batching":
                plugins[kind] = narrow(plugin, scenario)
            elif kind == "modifier":
                plugins["policy"] = fresh(plugin).around(plugins["policy"])
            elif kind in plugins:
                plugins[kind] = fresh(plugin)
        return plugins

    def among(self, plugins: Mapping[str, Any]) -> Any:
        """The plugin under test in a cast."""
        return plugins["policy" if self.kind == "modifier" else self.kind]


def narrow(batching: Any, scenario: Scenario) -> Any:
    """A new `batching` with the caps of the scenario, or with its own where its other options rule those out."""
    try:
        return fresh(batching, max_num_seqs=scenario.slots, max_num_batched_tokens=scenario.tokens)
    except UserError:
        return fresh(batching)


def inner(policy: Any) -> Any:
    """The policy that a modifier wraps, or None."""
    return policy.inner if isinstance(policy, Modifier) else None
