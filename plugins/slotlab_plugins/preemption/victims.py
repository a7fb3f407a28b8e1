"""Victims by rank, by age, and by what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slotlab import FOREVER, Evict, Mode, Need, Preemption, Quiet, RequestView, View


@dataclass
class Newest(Preemption):
    """Whoever started last gives way (vLLM under fcfs). `mode`: RECOMPUTE what it loses, or SWAP it to host memory and back."""

    mode: Mode = Mode.RECOMPUTE

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return (Evict(req, self.mode) for req in self._ordered(candidates, view))

    def _ordered(self, candidates: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        """Everybody, best victim first."""
        return reversed(candidates)

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # it never refuses: a displacement that found too little goes on finding too little


@dataclass
class LowestRank(Newest):
    """Whoever the policy ranks worst gives way, the requester included; under fcfs that is the newest arrival."""

    def _ordered(self, candidates: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        return sorted(candidates, key=lambda req: (view.rank(req), req.seq), reverse=True)


@dataclass
class LeastComputed(Newest):
    """Whoever has the fewest computed tokens to lose gives way, of equals the one that started last.

    SGLang's retraction is close to it: it takes whoever has the fewest output tokens.
    """

    def _ordered(self, candidates: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        return sorted(super()._ordered(candidates, view), key=lambda req: req.computed)


@dataclass
class MostBlocks(Newest):
    """Whoever holds the most blocks gives way, of equals the one that started last: the fewest evictions for what is needed.

    The longest sequences pay, and those are the dearest to compute again. Whoever started first comes last, or two long ones
    that do not fit together would evict each other for ever.
    """

    def _ordered(self, candidates: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        oldest = next(iter(view.running))
        return sorted(super()._ordered(candidates, view), key=lambda req: (req is oldest, -req.num_blocks))


CHOICES = {"lowest_rank": LowestRank, "newest": Newest, "least_computed": LeastComputed, "most_blocks": MostBlocks}
