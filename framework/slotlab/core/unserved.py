"""Why somebody got no token in a step: the decision log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slotlab.decisions import Verdict
from slotlab.plan import Bound
from slotlab.request import RequestState

if TYPE_CHECKING:
    from slotlab.core.planning import Planning

NOT_ASKED: dict[Bound, str] = {
    "slots": "no free slot",
    "kv": "KV ran out in this step: nobody new starts",
    "gate": "gate closed",
    "none": "left out by the policy's order",
}


def unserved(planning: Planning) -> Iterator[tuple[RequestState, str]]:
    """Everybody whom a finished plan left without a token though a decision was taken about it, and the reason.

    Of the waiting requests these are the ones that were passed over and the one at which the step stopped; who stands behind
    it was not looked at, and is not listed.
    """
    plan, refused = planning.plan, planning.refused
    for req in planning.evicted:
        yield req, "evicted" if req.preemptions else "its start was taken back"
    for req, (why, verdict) in refused.items():
        yield req, f"passed over: {why.value}" if verdict is Verdict.SKIP else why.value
    if all(verdict is Verdict.SKIP for _, verdict in refused.values()):
        yield from _head(planning)
    for req in plan.paused:
        yield req, "paused by the policy"
    for req in plan.seated:
        if req not in plan.tokens:
            spent = planning.view.tokens_left <= 0
            yield req, "no token budget left" if spent else "phase, quota or KV left nothing for it"


def _head(planning: Planning) -> Iterator[tuple[RequestState, str]]:
    """The next waiting request, if the step stopped before anybody asked whether it fits."""
    policy, known = planning.plugins.policy, {*planning.refused, *planning.evicted}
    for req in policy.order(planning.books.waiting, planning.view):
        if isinstance(req, RequestState) and req not in known:
            skipping = "left out by the policy's order, or no more may pass those who were passed over"
            yield req, skipping if planning.refused else NOT_ASKED.get(planning.plan.bound, planning.plan.bound)
            return
