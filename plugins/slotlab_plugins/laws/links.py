"""What requests have in common: the beginning of their prompts."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from slotlab import Streams, require
from slotlab_plugins.laws.lengths import Lengths

MOST_GROUPS, MOST_TURNS, MOST_THINK = 10**6, 1e6, 1e7


@dataclass
class Prefixes:
    """Shared beginnings, put before the prompts: `groups` of them (0: none), each as long as `tokens` says.

    A request is in group k with P ~ (k + 1) ** -`exponent`; with 0 all groups are equally large.
    """

    groups: int = 0
    tokens: Lengths = field(default_factory=lambda: Lengths("fixed", mean=256))
    exponent: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.groups <= MOST_GROUPS, "groups", self.groups, f"at least 0 and at most {MOST_GROUPS}")
        require(0 <= self.exponent <= 20, "exponent", self.exponent, "at least 0 and at most 20")

    def draw(self, streams: Streams, n: int) -> list[tuple[int | None, int]]:
        """Group and length of the shared prefix for each of `n` requests."""
        if not self.groups:
            return [(None, 0)] * n
        sizes = self.tokens.draw(streams("prefix_tokens"), self.groups)
        weights = np.cumsum(np.arange(1.0, self.groups + 1) ** -self.exponent)
        groups = np.searchsorted(weights, streams("prefixes").random(n) * weights[-1], side="right")
        return [(int(group), sizes[group]) for group in groups]


@dataclass
class Sessions:
    """Conversations of `turns` requests on average (geometric; 1: none), `think` seconds on average (exponential) after an
    answer. The prompt of each turn is all that was said before, and then a prompt of the usual length."""

    turns: float = 1.0
    think: float = 0.0

    def __post_init__(self) -> None:
        require(1 <= self.turns <= MOST_TURNS, "turns", self.turns, f"at least 1 and at most {MOST_TURNS:g}")
        require(0 <= self.think <= MOST_THINK, "think", self.think, f"at least 0 and at most {MOST_THINK:g}")

    def lengths(self, streams: Streams, n: int) -> list[int]:
        """Turns of each session, `n` in all; the last one may be cut."""
        if self.turns == 1:
            return [1] * n
        turns: list[int] = streams("turns").geometric(1 / self.turns, n).tolist()
        ends = list(accumulate(turns))
        sessions = next(i for i, end in enumerate(ends) if end >= n) + 1
        turns[sessions - 1] -= ends[sessions - 1] - n
        return turns[:sessions]

    def thinks(self, streams: Streams, n: int) -> NDArray[np.float64]:
        """Seconds of thinking before each of `n` requests."""
        return self.think * streams("think").exponential(size=n)
