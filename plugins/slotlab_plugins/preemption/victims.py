"""Victims by rank and by age, all by recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slotlab import FOREVER, Evict, Need, Preemption, Quiet, RequestView, View


@dataclass
class Newest(Preemption):
    """Whoever started last gives way (vLLM under fcfs)."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return map(Evict, reversed(candidates))

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # it never refuses: a displacement that found too little goes on finding too little


@dataclass
class LowestRank(Newest):
    """Whoever the policy ranks worst gives way, the requester included; under fcfs that is the newest arrival."""

    def victims(self, need: Need, requester: RequestView, candidates: Sequence[RequestView], view: View) -> Iterable[Evict]:
        return map(Evict, sorted(candidates, key=lambda req: (view.rank(req), req.seq), reverse=True))


CHOICES = {"lowest_rank": LowestRank, "newest": Newest}
