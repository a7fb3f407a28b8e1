"""The checks of the kinds that a scheduler is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotlab.errors import UserError
from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption
from slotlab.testing.cast import Subject
from slotlab.testing.cost import MAX_CALLS, check_cost
from slotlab.testing.draw import scenarios, streams
from slotlab.testing.explore import explore
from slotlab.testing.fresh import require_offer
from slotlab.testing.replay import same_under_hash_seeds
from slotlab.testing.rules import POLICIES, bypass, examine, forgets
from slotlab.testing.scenario import Scenario
from slotlab.testing.trial import Trial
from slotlab.testing.watched import Claims

BASES: dict[str, type] = {
    "policy": Policy,
    "modifier": Modifier,
    "batching": Batching,
    "admission": Admission,
    "preemption": Preemption,
    "predictor": Predictor,
}
NO_POLICY = Claims(work_conserving=False)
REPLAYED = 40  # scenarios, in each of a few processes


def check_policy(
    policy: Any,
    *,
    max_bypass: int | None = None,
    work_conserving: bool = True,
    max_calls: int = MAX_CALLS,
    examples: int | None = None,
    **companions: Any,
) -> None:
    """Fail with a Nonconformance unless `policy`, a class or a preset, keeps the contract.

    `max_bypass`: claims that no request sees more than so many later arrivals start before it. `work_conserving=False`: it may
    leave slots empty while somebody waits. `max_calls`: Python calls per step, beyond those of the default policy, at 10,000
    waiting. `companions`: plugins of other kinds without which it does not work, as in `admission=ReserveMax()`.
    """
    subject = Subject("policy", policy, companions)
    conform(subject, Claims(max_bypass, work_conserving), max_calls, examples)


def check_modifier(
    modifier: Any,
    *,
    max_bypass: int | None = None,
    work_conserving: bool = True,
    max_calls: int = MAX_CALLS,
    examples: int | None = None,
    **companions: Any,
) -> None:
    """As `check_policy`, around several policies; and what it is told reaches the policy that it wraps."""
    subject = Subject("modifier", modifier, companions)
    conform(subject, Claims(max_bypass, work_conserving), max_calls, examples)


def check_batching(batching: Any, *, max_calls: int = MAX_CALLS, examples: int | None = None, **companions: Any) -> None:
    """Fail with a Nonconformance unless `batching` keeps the contract. The scenarios set its caps, if its options allow."""
    conform(Subject("batching", batching, companions), NO_POLICY, max_calls, examples)


def check_admission(admission: Any, *, max_calls: int = MAX_CALLS, examples: int | None = None, **companions: Any) -> None:
    """Fail with a Nonconformance unless `admission` keeps the contract."""
    conform(Subject("admission", admission, companions), NO_POLICY, max_calls, examples)


def check_preemption(preemption: Any, *, max_calls: int = MAX_CALLS, examples: int | None = None, **companions: Any) -> None:
    """Fail with a Nonconformance unless `preemption` keeps the contract."""
    conform(Subject("preemption", preemption, companions), NO_POLICY, max_calls, examples)


def conform(subject: Subject, claims: Claims, max_calls: int, examples: int | None) -> None:
    """All rules, the cheapest first."""
    assert subject.pinned.keys() <= BASES.keys() - {subject.kind}, f"companions are {', '.join(BASES)}, and not its own kind"
    require_offer(subject.plugin, BASES[subject.kind])
    seen = explore(subject.name, scenarios(), lambda scenario: examine(subject, claims, scenario), examples, Scenario.smaller)
    if subject.kind in POLICIES:
        forgets(subject)
    if (most := claims.max_bypass) is not None:
        bypassing = lambda scenario: bypass(Trial(subject.name, scenario, subject.cast(scenario)).serve(), most)  # noqa: E731
        explore(subject.name, streams(most), bypassing, max(1, len(seen) // 4), Scenario.smaller)
    several = [scenario for scenario in seen if len(scenario.asks) > 2]
    plugins = {subject.kind: subject.plugin, **subject.pinned}
    same_under_hash_seeds(plugins, "slotlab.testing.scheduling:decisions", several[-REPLAYED:])
    check_cost(subject, max_calls)


def decisions(plugins: Mapping[str, Any], scenario: Scenario) -> object:
    """What a scenario comes to, for a replay in another process. The first of `plugins` is the one under test."""
    kind, *others = plugins
    subject = Subject(kind, plugins[kind], {name: plugins[name] for name in others})
    try:
        return Trial(subject.name, scenario, subject.cast(scenario)).serve().decisions
    except UserError as error:
        return str(error)
