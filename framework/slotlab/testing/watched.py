"""A trial under observation."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab.core.unserved import NOT_ASKED
from slotlab.plan import Plan
from slotlab.testing.cast import Subject, inner
from slotlab.testing.scenario import Scenario
from slotlab.testing.trial import MAX_BYPASS, Trial
from slotlab.testing.watch import Watch


@dataclass(frozen=True)
class Claims:
    """What an author says of a policy: see `check_policy`."""

    max_bypass: int | None = None
    work_conserving: bool = True


class WatchedTrial(Trial):
    """With a `Watch` around the plugin under test and around the policy, outermost first where modifiers wrap one."""

    def __init__(self, subject: Subject, claims: Claims, scenario: Scenario) -> None:
        plugins = subject.cast(scenario)
        under, policies = subject.among(plugins), [plugins["policy"]]
        while (policy := inner(policies[-1])) is not None:
            policies.append(policy)
        self.claims, self._told = claims, 0
        self.policies = [Watch(policy, subject.name if policy is under else type(policy).__name__) for policy in policies]
        others = [] if any(under is policy for policy in policies) else [Watch(under, subject.name)]
        super().__init__(subject.name, scenario, plugins)
        self.scheduler.log_decisions = True
        for watch in (*self.policies, *others):
            watch.requests, watch.view = self.states, self.view

    def _note(self, plan: Plan) -> None:
        super()._note(plan)
        told = self.policies[0].log
        undone = any(entry[0] == "preempted" for entry in told[self._told :])
        self._told = len(told)
        waiting, room = self.scheduler.books.waiting, self.view.slots_left > 0 and self.view.tokens_left > 0
        capped = any(req.bypassed >= MAX_BYPASS for req in waiting)  # the core lets nobody else past
        if self.claims.work_conserving and plan.bound == "none" and room and not (undone or capped):
            asked = {req for req, why in plan.unserved if why not in NOT_ASKED.values()}
            if (waits := next((req for req in waiting if req not in asked), None)) is not None:
                what = f"request {waits.id} waits at {plan.time:g} beside a free slot and free tokens, and `order` leaves it out"
                raise self.fault("work conservation", what)
