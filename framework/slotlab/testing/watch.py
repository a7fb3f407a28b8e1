"""Stands around a plugin, and sees what it is asked, what it answers, and what it touches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from numbers import Real
from typing import Any

from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption
from slotlab.request import RequestState
from slotlab.testing.faults import Nonconformance
from slotlab.testing.frozen import difference, freeze, state
from slotlab.view import View

# What may be asked any number of times, and must leave no trace; and what a plugin is told, after which it may change.
PURE: dict[type, tuple[str, ...]] = {
    Policy: ("lane", "key", "rank", "order", "order_running", "on_misfit", "quiet"),
    Batching: ("gate", "budget", "quota", "quiet"),
    Admission: ("reserve", "quiet"),
    Preemption: ("victims", "quiet"),
    Predictor: ("predict",),
}
TOLD: dict[type, tuple[str, ...]] = {
    Policy: ("arrived", "started", "preempted", "left", "served"),
    Batching: ("padding",),
    Admission: ("admit",),
    Predictor: ("finished",),
}
ALWAYS = ("arrived", "started", "preempted", "left")  # logged even where the plugin does not listen; that costs it no jump
LAZY = ("order", "order_running", "victims")
FIELDS = [f.name for f in fields(RequestState) if f.name != "prefix_hits"]  # that one is the core's own memory
SIGHTS = ("now", "step", "last_start", "prefill_clock", "slots_left", "tokens_left")


class Watch:
    """Around one plugin, which stays of its class for all that anybody can tell."""

    def __init__(self, plugin: Any, name: str) -> None:
        self.plugin, self.name = plugin, name
        self.requests: Sequence[RequestState] = ()
        self.view: View | None = None
        self.log: list[tuple[Any, ...]] = []  # what a policy was told
        self._busy = False
        self._shapes: dict[str, type] = {}
        kind = next(kind for kind in PURE if isinstance(plugin, kind))
        base = Modifier if isinstance(plugin, Modifier) else kind
        cls, own = type(plugin), dict[str, Any](__slots__=(), __doc__=type(plugin).__doc__)
        for hook in (*PURE[kind], *TOLD.get(kind, ())):
            if hook in ALWAYS or getattr(cls, hook) is not getattr(base, hook):
                own[hook] = self._around(hook, getattr(cls, hook), hook in PURE[kind])
        watched = type(cls.__name__, (cls,), own)
        watched.__module__, watched.__qualname__ = cls.__module__, cls.__qualname__
        object.__setattr__(plugin, "__class__", watched)

    def fault(self, rule: str, what: str) -> Nonconformance:
        """To be raised."""
        return Nonconformance(self.name, rule, what)

    def _around(self, hook: str, method: Callable[..., Any], pure: bool) -> Callable[..., Any]:
        def asked(it: Any, *args: Any) -> Any:  # `it`, so that errors are blamed on the method and not on this one
            if self._busy:  # it asks itself
                return method(it, *args)
            answer = self._quietly(hook, lambda: method(it, *args), pure)
            if not pure:
                self._note(hook, args)
            elif hook in LAZY:
                return self._twice_lazily(hook, answer, lambda: method(it, *args))
            else:
                again = self._quietly(hook, lambda: method(it, *args), pure)
                if hook in ("key", "rank"):
                    self._place(hook, answer)
                if answer != again:
                    raise self.fault("pure", f"{hook} answered {freeze(answer)!r}, and asked again {freeze(again)!r}")
            return answer

        return asked

    def _quietly(self, hook: str, call: Callable[[], Any], pure: bool) -> Any:
        """Call, and see to it that nothing changed that must not."""
        requests, sights = self._requests(), self._sights()
        mine = state(self.plugin) if pure else {}
        self._busy = True
        try:
            answer = call()
        finally:
            self._busy = False
        if (now := self._requests()) != requests:
            raise self.fault("read only", f"{hook} wrote to a request: {self._written(requests, now)}")
        if self._sights() != sights:
            raise self.fault("read only", f"{hook} wrote to the view")
        if pure and (changed := difference(mine, state(self.plugin))):
            raise self.fault("pure", f"{hook} changed the plugin's {changed}; only events may")
        return answer

    def _requests(self) -> list[tuple[Any, ...]]:
        return [tuple([tuple(v) if isinstance(v := getattr(req, f), list) else v for f in FIELDS]) for req in self.requests]

    def _written(self, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]) -> str:
        changes = (
            f"{name} of request {req.id} from {a!r} to {b!r}"
            for req, old, new in zip(self.requests, before, after, strict=True)
            for name, a, b in zip(FIELDS, old, new, strict=True)
            if a != b
        )
        return next(changes)

    def _sights(self) -> list[float]:
        return [getattr(self.view, name) for name in SIGHTS] if self.view else []

    def _twice_lazily(self, hook: str, answer: Any, ask: Callable[[], Any]) -> Any:
        """The answer as it is pulled, each pull watched; who comes first is asked twice."""
        if not hasattr(answer, "__iter__"):
            return answer
        again = iter(self._quietly(hook, ask, True))
        first = self._quietly(hook, lambda: next(again, None), True)
        return self._pulled(hook, iter(answer), first)

    def _pulled(self, hook: str, answer: Iterator[Any], first: Any) -> Iterator[Any]:
        end, pulls = object(), 0
        while (item := self._quietly(hook, lambda: next(answer, end), True)) is not end:
            if not pulls and item != first:
                raise self.fault("pure", f"{hook} began with {freeze(item)!r}, and asked again with {freeze(first)!r}")
            pulls += 1
            yield item

    def _place(self, hook: str, answer: Any) -> None:
        """Fail unless a key or a rank can be compared with every other."""
        parts = answer if isinstance(answer, tuple) else (answer,)
        if not all(isinstance(part, Real) for part in parts):
            raise self.fault("comparable keys", f"{hook} answered {answer!r}: must be a number, or a tuple of numbers")
        if any(part != part for part in parts):
            raise self.fault("comparable keys", f"{hook} answered {answer!r}, which has no place in an order")
        shape = tuple if isinstance(answer, tuple) else Real
        if self._shapes.setdefault(hook, shape) is not shape:
            raise self.fault("comparable keys", f"{hook} answers numbers for some requests and tuples for others")

    def _note(self, hook: str, args: tuple[Any, ...]) -> None:
        if hook == "served":
            work, steps = args
            self.log.append((hook, tuple((req.id, prompt, output) for req, prompt, output in work), steps))
        elif hook in TOLD[Policy]:
            req, *more = args
            self.log.append((hook, req.id, *(more if hook != "arrived" else ()), req.preemptions))
