"""What a curve is held against: a scheduler that knows every output length and never runs out of KV."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from statistics import fmean

from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.decisions import FOREVER, Quiet
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption
from slotlab.lab.bench import Bench
from slotlab.record.recorder import Recorder
from slotlab.request import Request, RequestView
from slotlab.view import View
from slotlab.workload import Arrival, Point

MOST_TOKENS = 500_000  # output tokens of a repeat that is served a second time without being asked


class Clairvoyant(Predictor):
    """Knows."""

    oracle = True

    def predict(self, req: Request, truth: int | None) -> int:
        assert truth is not None, f"request {req.id}: nobody knows its length"
        return truth


class SRPT(Policy):
    """Shortest remaining processing time, in steps; whoever is not among the best of all pauses and keeps its KV.

    Optimal for the mean latency on one server (Schrage, 1968); with many slots, whose steps slow each other down, a good
    reference and no proof.
    """

    def __init__(self, slots: int, tokens: int) -> None:
        self.slots, self.tokens = slots, tokens

    def key(self, req: RequestView) -> float:
        return req.predicted_output - req.emitted + math.ceil((req.remaining - 1) / self.tokens)

    def order_running(self, running: Sequence[RequestView], view: View) -> Iterable[RequestView]:
        mine = sorted(((self.key(req), 0, req.seq, req) for req in running), key=lambda entry: entry[:3])
        others = ((self.key(req), 1, req.seq, None) for req in view.waiting)
        merged = heapq.merge(mine, others, key=lambda entry: entry[:3])
        return [req for *_, req in (entry for entry, _ in zip(merged, range(self.slots), strict=False)) if req is not None]

    def quiet(self, view: View) -> Quiet:
        """Those who run come nearer to their end with each step, and nobody else does."""
        return FOREVER


def oracle_bounds(bench: Bench, point: Point, repeat: int, arrivals: Sequence[Arrival]) -> dict[str, float]:
    """The figures of `ORACLE` for one load point and repeat, on an engine with a virtual clock."""
    batching, engine = bench.lab.batching, bench.lab.engine
    slots, tokens = batching.max_num_seqs, batching.max_num_batched_tokens
    blocks = sum(-(-(arrival.prompt_tokens + arrival.max_tokens) // engine.block_size) for arrival in arrivals)
    policy, free = SRPT(slots, tokens), Batching(slots, tokens)
    pool = BlockPool(blocks, engine.block_size)
    scheduler = Scheduler(pool, policy, free, Admission(), Preemption(), Clairvoyant())
    recorder = Recorder(block_size=engine.block_size)
    bench.run(scheduler, point, repeat, arrivals, recorder)
    found = {"bound_e2e_mean": fmean(recorder.times[req.id][-1] - req.arrival for req in recorder.states)}
    if least := engine.least_time(arrivals, slots, tokens):
        found["bound_output_throughput"] = sum(arrival.most_output for arrival in arrivals) / least
    return found
