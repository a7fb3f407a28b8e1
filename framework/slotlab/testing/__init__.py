"""The conformance kit: proves with one line of a test that a plugin keeps its contract.

`check_policy(MyPolicy)` and its sisters drive a plugin through many small scenarios and raise `Nonconformance`, an
AssertionError, for the smallest that breaks a rule. See docs/conformance-kit.md. Needs `pip install 'slotlab[testing]'`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from slotlab.testing.faults import Nonconformance

if TYPE_CHECKING:
    from slotlab.testing.engines import check_engine
    from slotlab.testing.predictors import check_predictor
    from slotlab.testing.scheduling import check_admission, check_batching, check_modifier, check_policy, check_preemption
    from slotlab.testing.workloads import check_workload

__all__ = [
    "Nonconformance",
    "check_admission",
    "check_batching",
    "check_engine",
    "check_modifier",
    "check_policy",
    "check_predictor",
    "check_preemption",
    "check_workload",
]

_HOMES = {"check_engine": "engines", "check_predictor": "predictors", "check_workload": "workloads"}


def __getattr__(name: str) -> Any:
    """The checks are imported when they are first asked for: pytest loads this package in every session."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("hypothesis") is None:
        raise ImportError("slotlab.testing needs hypothesis: pip install 'slotlab[testing]'")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'scheduling')}"), name)
