"""The kinds of scheduling plugin. Override the smallest method that says what you mean.

A method that is not overridden costs nothing: the scheduler looks once, when it is built, at what each plugin defines.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from slotlab.decisions import (
    FOREVER,
    ONE_STEP,
    Accept,
    Closed,
    Evict,
    Hold,
    Misfit,
    Need,
    Open,
    Quiet,
    Reject,
    StepBudget,
    Verdict,
)
from slotlab.errors import UserError, require
from slotlab.limits import MOST_SLOTS, MOST_TOKENS
from slotlab.request import Request, RequestView, Status
from slotlab.view import View
from slotlab.waiting import Key, Waiting

Served = Sequence[tuple[RequestView, int, int]]
CHANGING = ("order", "order_running", "on_misfit", "rank", "served")  # what may go otherwise as others decode


def overrides(plugin: object, base: type, *names: str) -> bool:
    """Whether the plugin, or a policy that it wraps, defines any of these methods itself."""
    if isinstance(plugin, Modifier):
        return overrides(plugin.inner, base, *names) or _redefines(plugin, Modifier, names)
    return _redefines(plugin, base, names)


def _redefines(plugin: object, base: type, names: Iterable[str]) -> bool:
    return any(getattr(type(plugin), name) is not getattr(base, name) for name in names)


@dataclass
class Policy:
    """Who runs first, and who gives way. The default is first come, first served."""

    uses: ClassVar[tuple[str, ...]] = ()  # engine options, as `prefix_cache`, without which it acts as fcfs; the run then says so

    def lane(self, req: RequestView) -> Hashable:
        """The queue `req` waits in: a tenant, a level. Asked when it is queued."""
        return None

    def key(self, req: RequestView) -> Key:
        """Its place in the lane, smaller first; ties go to the earlier arrival. Asked when it is queued."""
        return req.arrival

    def rank(self, req: RequestView, view: View) -> Key:
        """How any two requests compare now, smaller is better; equal rank never displaces.

        For displacement and for the preemption `lowest_rank`. Leave the sequence number out of it.
        """
        return self.key(req)

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        """Waiting requests, best first.

        Pulled lazily: when the next one is asked for, the one before has started or was skipped. May be asked any number
        of times: change your state in the event methods only.
        """
        return waiting

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        """Running requests, best first. One left out keeps its KV and gets a slot only if nobody else takes it."""
        return running

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        """What to do when `req`, next in order, cannot start."""
        return Verdict.STOP

    def arrived(self, req: RequestView, view: View) -> None:
        """Called before `req` is queued for the first time."""

    def started(self, req: RequestView, cached: int) -> None:
        """`req` left the queue for a slot, with `cached` tokens already computed; at once, before the next one is pulled."""

    def served(self, work: Served, steps: int) -> None:
        """Once per step: (request, prompt tokens computed for the first time, output tokens). After a jump, `steps` > 1."""

    def preempted(self, req: RequestView, lost: int) -> None:
        """`req` lost its slot and `lost` computed tokens; called before it is queued again.

        `req.preemptions == 0`: it had started in this very step and nothing was computed. Take its charge back.
        """

    def left(self, req: RequestView, status: Status) -> None:
        """`req` finished, was rejected, or was aborted."""

    def quiet(self, view: View) -> Quiet:
        """See `Quiet`. By default one step for a policy that overrides anything which may change while others decode."""
        return ONE_STEP if overrides(self, Policy, *CHANGING) else FOREVER


@dataclass
class Modifier(Policy):
    """Changes some answers of the policy that it wraps; whatever it does not override is the policy's own.

    Several are applied in the order in which they were chosen: the last one is outermost. Override a method and call that of
    `self.inner` in it; one that handles an event must pass it on.
    """

    @property
    def inner(self) -> Policy:
        """The wrapped policy. UserError if there is none: a modifier is not chosen as a policy."""
        if wrapped := vars(self).get("_inner"):
            assert isinstance(wrapped, Policy)
            return wrapped
        kind = type(self).__name__
        raise UserError(f"{kind} wraps nothing: it is a modifier, to be chosen beside a policy, as in policy=fcfs modifier=[...]")

    def around(self, policy: Policy) -> Self:
        """Wrap `policy`."""
        vars(self)["_inner"] = policy
        return self

    def lane(self, req: RequestView) -> Hashable:
        return self.inner.lane(req)

    def key(self, req: RequestView) -> Key:
        return self.inner.key(req)

    def rank(self, req: RequestView, view: View) -> Key:
        return self.inner.rank(req, view)

    def order(self, waiting: Waiting, view: View) -> Iterable[RequestView]:
        return self.inner.order(waiting, view)

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        return self.inner.order_running(running, view)

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return self.inner.on_misfit(req, why, view)

    def arrived(self, req: RequestView, view: View) -> None:
        self.inner.arrived(req, view)

    def started(self, req: RequestView, cached: int) -> None:
        self.inner.started(req, cached)

    def served(self, work: Served, steps: int) -> None:
        self.inner.served(work, steps)

    def preempted(self, req: RequestView, lost: int) -> None:
        self.inner.preempted(req, lost)

    def left(self, req: RequestView, status: Status) -> None:
        self.inner.left(req, status)

    def quiet(self, view: View) -> Quiet:
        return ONE_STEP if _redefines(self, Modifier, CHANGING) else self.inner.quiet(view)


def layers(policy: Policy) -> Iterator[Policy]:
    """The policy and, where it is a modifier, those that it wraps; outermost first."""
    yield policy
    if isinstance(policy, Modifier):
        yield from layers(policy.inner)


@dataclass
class Batching:
    """When waiting requests may join the running batch, and how many tokens each request gets in a step."""

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512

    keeps_slots: ClassVar[bool] = False  # True: a slot counts as held until its whole batch has ended

    def __post_init__(self) -> None:
        for name, most in (("max_num_seqs", MOST_SLOTS), ("max_num_batched_tokens", MOST_TOKENS)):
            value = getattr(self, name)
            require(1 <= value <= most, name, value, f"at least 1 and at most {most}")

    def gate(self, view: View) -> Open | Closed:
        """Whether anybody may start in this step. Asked once per step, and only if somebody could."""
        return Open()

    def budget(self, view: View) -> StepBudget:
        """Caps of this step."""
        return StepBudget(self.max_num_seqs, self.max_num_batched_tokens)

    def quota(self, req: RequestView, left: int, view: View) -> int:
        """Most tokens for `req` in this step, of its `left` uncomputed ones; 0: it idles."""
        return left

    def padding(self, tokens: Collection[int], view: View) -> int:
        """Tokens to compute and throw away besides those of the step, given per request. Asked last, of a step that computes."""
        return 0

    def quiet(self, view: View) -> Quiet:
        """See `Quiet`."""
        return ONE_STEP if overrides(self, Batching, "gate", "budget", "quota") else FOREVER


@dataclass
class Admission:
    """Whether a request may queue at all, and how much KV is committed to it when it starts."""

    def admit(self, req: RequestView, view: View) -> Accept | Reject | Hold:
        """Queue `req`, refuse it for good, or ask again later."""
        return Accept()

    def reserve(self, req: RequestView, view: View) -> int | None:
        """Tokens of KV to allocate at once; the core raises it to what the first chunk needs.

        None: it may not start now, for a reserve of the admission's own. A plain shortage is for the core to see, which may skip
        or displace: ask for what is to be committed, whether or not there is room. `view.blocks_to_start` says how much a start
        takes. Where requests are about to be displaced, the view is what it would be without them.
        """
        return req.prompt_tokens + req.emitted

    def quiet(self, view: View) -> Quiet:
        """See `Quiet`."""
        return ONE_STEP if overrides(self, Admission, "reserve") else FOREVER


@dataclass
class Preemption:
    """Whom to evict when KV or slots run out, and how. The default evicts whoever started last."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        """Best victim first; the core takes as many as it needs. Nothing: the requester waits. The requester may be named."""
        return map(Evict, reversed(candidates))

    def quiet(self, view: View) -> Quiet:
        """See `Quiet`."""
        return ONE_STEP if overrides(self, Preemption, "victims") else FOREVER


@dataclass
class Predictor:
    """How long the output will be."""

    oracle: ClassVar[bool] = False  # True: `predict` is given the truth, and the run is marked

    def predict(self, req: Request, truth: int | None) -> int:
        """Output tokens expected of `req`; the core clamps it to 1 .. `max_tokens`."""
        return req.max_tokens

    def finished(self, req: RequestView) -> None:
        """`req` ended with `req.emitted` tokens: learn from it."""
