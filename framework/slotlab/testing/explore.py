"""Finds the smallest of many drawn values that breaks a rule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from slotlab.errors import UserError
from slotlab.testing.faults import Nonconformance
from slotlab.testing.session import SESSION

T = TypeVar("T", bound=Hashable)
PATIENCE = 400  # values tried to make a failing one smaller


class Search(Generic[T]):
    """Judges values, each once: a plugin that answers otherwise the next time must not confuse whoever makes them smaller."""

    def __init__(self, examine: Callable[[T], None]) -> None:
        self.examine = examine
        self.verdicts: dict[T, Nonconformance | None] = {}
        self.declined: list[UserError] = []
        self.deadline: int | None = None  # how many verdicts there may be

    def __call__(self, value: T) -> None:
        """Raise the fault of `value`, if it has one."""
        if value not in self.verdicts:
            spent = self.deadline is not None and len(self.verdicts) >= self.deadline
            fault = self.verdicts[value] = None if spent else self._judge(value)
            if fault and self.deadline is None:
                self.deadline = len(self.verdicts) + PATIENCE
        if fault := self.verdicts[value]:
            raise fault

    def _judge(self, value: T) -> Nonconformance | None:
        try:
            self.examine(value)
        except Nonconformance as fault:
            return fault
        except UserError as error:
            self.declined.append(error)
        return None

    def reduced(self, fault: Nonconformance, smaller: Callable[[T], Iterable[T]]) -> Nonconformance:
        """The fault of the same value, or of one from which whole parts were taken; hypothesis is slow to do that."""
        value = next(value for value, verdict in self.verdicts.items() if verdict is fault)
        parts = iter(smaller(value))
        while (less := next(parts, None)) is not None:
            if found := self._judge(less):
                fault, parts = found, iter(smaller(less))
        fault.__notes__ = []  # of hypothesis; the scenario is in the message
        return fault


def nothing(value: object) -> Iterable[Any]:
    """For values without parts."""
    return ()


def explore(
    name: str,
    strategy: SearchStrategy[T],
    examine: Callable[[T], None],
    examples: int | None,
    smaller: Callable[[T], Iterable[T]] = nothing,
) -> list[T]:
    """Examine so many values, by default as many as the session says; the same ones each time. Returns them.

    Raises the fault of the smallest that fails; `smaller` gives those that lack a part. A plugin may decline values by a
    UserError, but not most of them.
    """
    search = Search(examine)
    run = settings(
        max_examples=examples or SESSION.examples,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
    )(given(strategy)(lambda value: search(value)))
    try:
        run()
    except Nonconformance as fault:
        raise search.reduced(fault, smaller).with_traceback(None) from None
    if len(search.declined) * 2 > len(search.verdicts):
        what = f"it declines {len(search.declined)} of {len(search.verdicts)} scenarios: {search.declined[0]}"
        raise Nonconformance(name, "no errors", what)
    return list(search.verdicts)
