"""What an arrival must be, or no engine can serve it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from numbers import Real

from slotlab.errors import PluginError, UserError
from slotlab.limits import LATEST, MOST_TOKENS, PRIORITIES
from slotlab.workload import Arrival, Workload


def check_arrivals(workload: Workload, arrivals: Sequence[Arrival]) -> None:
    """Refuse a workload that draws nothing, or what no client could send."""
    if not arrivals:
        raise UserError("workload: it is empty")
    for index, arrival in enumerate(arrivals):
        if not isinstance(arrival, Arrival):
            raise PluginError(workload, index, f"draw gave {arrival!r}: must be an Arrival")
        if wrong := next(faults(index, arrivals), None):
            raise PluginError(workload, index, f"draw gave {wrong}")


def faults(index: int, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """What is wrong with an arrival; those before it are right."""
    arrival, before = arrivals[index], arrivals[index - 1].time if index else 0.0
    if not number(arrival.time) or arrival.time > LATEST:
        yield f"time {arrival.time}: must be finite, and at most {LATEST:g}"
    elif arrival.time < before:
        yield f"time {arrival.time} after {before}: must not go back"
    yield from wrong_counts(arrival)
    if not (arrival.text is None or words(arrival.text)):
        yield f"text {arrival.text!r}: must be words, or (role, words) of each message"
    if type(arrival.tenant) is not str:
        yield f"tenant {arrival.tenant!r}: must be a str"
    if not (type(arrival.priority) is int and PRIORITIES[0] <= arrival.priority <= PRIORITIES[1]):
        yield f"priority {arrival.priority!r}: must be an int, from {PRIORITIES[0]} to {PRIORITIES[1]}"
    if not (arrival.deadline is None or number(arrival.deadline)):
        yield f"deadline {arrival.deadline!r}: must be finite, or None"
    if not (number(arrival.weight) and arrival.weight > 0):
        yield f"weight {arrival.weight}: must be greater than 0"
    yield from wrong_beginning(index, arrivals)


def wrong_counts(arrival: Arrival) -> Iterator[str]:
    """Which of its counts are out of range."""
    least = {"prompt_tokens": 0 if arrival.text else 1, "max_tokens": 1, "output_tokens": 1, "prefix_tokens": 0}
    if arrival.output_tokens is None:
        del least["output_tokens"]
    for name, low in least.items():
        if not (type(value := getattr(arrival, name)) is int and low <= value <= MOST_TOKENS):
            yield f"{name} {value!r}: must be an int, at least {low} and at most {MOST_TOKENS}"
            return
    if arrival.output_tokens is not None and arrival.output_tokens > arrival.max_tokens:
        yield f"output_tokens {arrival.output_tokens}: must be at most max_tokens, {arrival.max_tokens}"


def wrong_beginning(index: int, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """What it cannot share with others, or say after them."""
    arrival = arrivals[index]
    if not (arrival.prefix_group is None or type(arrival.prefix_group) is int):
        yield f"prefix_group {arrival.prefix_group!r}: must be an int, or None"
    if arrival.prefix_tokens and not arrival.text and arrival.prefix_tokens >= arrival.prompt_tokens:
        yield f"prefix_tokens {arrival.prefix_tokens}: must be fewer than the prompt's {arrival.prompt_tokens}"
    if not (number(arrival.think) and 0 <= arrival.think <= LATEST):
        yield f"think {arrival.think}: must be at least 0 and at most {LATEST:g}"
    if arrival.follows is None:
        return
    if not (type(arrival.follows) is int and 0 <= arrival.follows < index):
        yield f"follows {arrival.follows}: must be the index of an arrival before it"
        return
    parent = arrivals[arrival.follows]
    if arrival.text is None and parent.text is not None:
        yield f"follows {arrival.follows}: must be an arrival without words, as this one is"
    elif arrival.text is None and arrival.prompt_tokens <= (said := parent.prompt_tokens + parent.most_output):
        yield f"prompt_tokens {arrival.prompt_tokens}: must be more than the {said} that were said before"


def number(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, Real) and math.isfinite(value)


def words(text: object) -> bool:
    """Whether it is a prompt, or a chat, that says something."""
    if not isinstance(text, tuple):
        return isinstance(text, str) and text != ""
    return text != () and all(isinstance(part, tuple) and tuple(map(type, part)) == (str, str) for part in text)
