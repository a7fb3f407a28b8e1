"""When a step may be repeated: decodes in which nothing can change are run in one jump, with the results of single steps."""

from __future__ import annotations

from collections.abc import Mapping

from slotlab.core.answers import expect, moment, whole
from slotlab.core.books import Books
from slotlab.decisions import FOREVER, Misfit, Quiet, Verdict
from slotlab.kinds import Admission, Batching, Policy, Preemption
from slotlab.plan import Plan
from slotlab.request import RequestState
from slotlab.view import View


def allow_repeats(plan: Plan, books: Books, refused: Mapping[RequestState, tuple[Misfit, Verdict]]) -> None:
    """Set `plan.repeat` and `plan.until` for a plan in which every request decodes, those `refused` having been asked in vain."""
    view, plugins = books.view, books.plugins
    choosing = bool(books.waiting) and (view.slots_left > 0 or plugins.contests)  # else nobody is asked who is next
    idle = len(plan.tokens) < len(books.running)
    policy = ask(plugins.policy, view) if choosing or idle or plugins.watches or plugins.pauses else FOREVER
    batching = ask(plugins.batching, view)
    admission = ask(plugins.admission, view) if choosing else FOREVER
    preemption = ask(plugins.preemption, view) if idle or (choosing and plugins.contests) else FOREVER
    limits: tuple[Quiet, ...] = policy, batching, admission, preemption
    steps = min(limit.steps for limit in limits)
    if steps > 1:
        pool = books.pool
        free = len(pool.free) if choosing else pool.available  # who is offered a start must go on finding what it would share
        for req, (why, _) in refused.items():
            if why is Misfit.RESERVE:  # once this is gone, it is refused for a shortage
                free = min(free, max(0, view.free_blocks - view.blocks_to_start(req)))
        steps = min(steps, room(plan, pool.block_size, free))
    plan.repeat = max(1, steps)
    plan.until = min(plan.until, *(limit.until for limit in limits))


def ask(plugin: Policy | Batching | Admission | Preemption, view: View) -> Quiet:
    """The plugin's answer, if it is one."""
    quiet = expect(plugin, "quiet", plugin.quiet(view), Quiet)
    return Quiet(whole(plugin, "quiet", None, quiet.steps), moment(plugin, "quiet", quiet.until))


def room(plan: Plan, size: int, free: int) -> int:
    """Steps for which so many free blocks last, those of the first step being taken. A lower bound, exact when it is short."""
    if free >= len(plan.tokens):
        return 1 + size * (free // len(plan.tokens))
    slack = sorted(req.capacity - req.computed - 1 for req in plan.tokens)
    return 1 + min(size, slack[free])
