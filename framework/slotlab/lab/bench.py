"""One load point served, and the capacity of an engine."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock
from omegaconf import DictConfig

from slotlab.arrivals import check_arrivals
from slotlab.core.blocks import BlockPool
from slotlab.core.prefix import PrefixPool
from slotlab.core.scheduler import Scheduler
from slotlab.errors import UserError, blame
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption, overrides
from slotlab.lab.config import Lab, build, science
from slotlab.lab.folder import write_json
from slotlab.lab.progress import console
from slotlab.lab.replies import begun, contents, context_of, prepared
from slotlab.lab.saturation import Saturation, concatenate, saturation
from slotlab.reading import read_object
from slotlab.record.recorder import Recorder
from slotlab.record.seats import Seats
from slotlab.request import Status
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.streams import Streams
from slotlab.workload import Arrival, Load, Point

SLOT_CHART_CELLS = 200_000  # most cells (slot x step) that are written down without being asked


@dataclass
class Bench:
    """An opened engine, and the scheduling plugins that each load point and repeat gets anew."""

    cfg: DictConfig
    lab: Lab
    folder: Path  # of the sweep, or of a single run
    predictor: str

    def arrivals(self, repeat: int) -> list[Arrival]:
        """The requests of one repeat, as the engine will get them."""
        with blame(self.lab.workload):
            drawn = list(self.lab.workload.draw(Streams(self.lab.seed, repeat)))
        check_arrivals(self.lab.workload, drawn)
        arrivals = prepared(self.lab.engine, drawn)
        if self.lab.predictor.oracle and any(arrival.output_tokens is None for arrival in arrivals):
            raise UserError(f"predictor={self.predictor}: the workload does not know the lengths of its answers")
        return arrivals

    def recorder(self, index: int, repeat: int, arrivals: Sequence[Arrival], progress: Callable[[int], None]) -> Recorder:
        """An empty recorder for a load point and repeat; it charts the slots of small runs."""
        batching, engine = self.lab.batching, self.lab.engine
        cells = batching.max_num_seqs * sum(arrival.most_output for arrival in arrivals)
        seats = Seats(batching.keeps_slots, chart=self.lab.record.wants("slots", cells, SLOT_CHART_CELLS))
        return Recorder(index, repeat, engine.block_size, self.predictor, seats, progress)

    def serve(self, point: Point, repeat: int, arrivals: Sequence[Arrival], recorder: Recorder) -> None:
        """Serve `arrivals` under new plugins. What was recorded is there even if that is interrupted."""
        new = build(self.cfg)
        policy = new.modified_policy()
        scheduler = self._scheduler(policy, new.batching, new.admission, new.preemption, new.predictor)
        scheduler.log_decisions = self.lab.record.decisions
        self.run(scheduler, point, repeat, arrivals, recorder, self.lab.load.max_seconds or math.inf)
        if refused := Counter(req.reason for req in recorder.states if req.status is Status.REJECTED):
            recorder.remarks["rejected"] = f"{refused.total()} requests rejected: {refused.most_common(1)[0][0]}"
        if len(arrivals) > 1 and scheduler.books.waiting.indifferent and type(new.policy).key is not Policy.key:
            recorder.remarks["acts_as_fcfs"] = "all keys are equal: the policy acts as fcfs"
        if recorder.ended_early:
            recorder.remarks["ended_early"] = f"point {recorder.point} ended at load.max_seconds={self.lab.load.max_seconds}"

    def run(
        self,
        scheduler: Scheduler,
        point: Point,
        repeat: int,
        arrivals: Sequence[Arrival],
        recorder: Recorder,
        limit: float = math.inf,
    ) -> None:
        """Serve `arrivals` under `scheduler`, until time `limit` at the latest."""
        engine, streams = self.lab.engine, Streams(self.lab.seed, repeat)
        clock = begun(engine, arrivals, streams)
        loop = source(arrivals, point, streams, self.lab.workload.own_times)
        serve(loop, scheduler, engine, clock, recorder, lambda id: arrivals[id].output_tokens, limit)

    def _scheduler(
        self, policy: Policy, batching: Batching, admission: Admission, preemption: Preemption, predictor: Predictor
    ) -> Scheduler:
        engine = self.lab.engine
        size = engine.num_blocks, engine.block_size
        pool = PrefixPool(*size, contents(engine)) if engine.prefix_cache else BlockPool(*size)
        context = context_of(self.lab.model) if engine.real else sys.maxsize
        return Scheduler(pool, policy, batching, admission, preemption, predictor, max_context=context)

    @contextmanager
    def shared(self, name: str) -> Iterator[dict[str, Any]]:
        """What the jobs of a sweep agree on, in `<name>.json`: whoever needs it first decides while the others wait."""
        path = self.folder / f"{name}.json"
        with FileLock(self.folder / f".{name}.lock"):
            known = read_object(path, {}) if path.exists() else {}
            before = dict(known)
            yield known
            if known != before:
                write_json(path, known)

    def setting(self, *others: str) -> str:
        """Stands for what jobs must have in common to share a decision."""
        plain = science(self.cfg)
        parts = {name: plain[name] for name in ("engine", "model", "workload", "seed", *others)}
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @contextmanager
    def repeats(self, index: int) -> Iterator[Callable[[Sequence[Mapping[str, float]]], bool]]:
        """Tells from the figures of the repeats so far whether a point needs no more: as many as in the sweep's other jobs."""
        load = self.lab.load
        if not overrides(load, Load, "enough"):
            yield load.enough
            return
        key = f"{self.setting('load')}/{index}"
        with self.shared("repeats") as known:

            def enough(figures: Sequence[Mapping[str, float]]) -> bool:
                if key not in known and load.enough(figures):
                    known[key] = len(figures)
                return bool(len(figures) >= known.get(key, math.inf))

            yield enough

    def capacity(self) -> float:
        """Requests per second that the engine completes when it never runs dry.

        All requests of a repeat of their own arrive at once, under fcfs and continuous batching with the same caps; what
        counts is the time between the first and the last tenth of the answers. Measured by the first job of a sweep.
        """
        caps = self.lab.batching
        key = f"{self.setting()}/{caps.max_num_seqs}/{caps.max_num_batched_tokens}"
        with self.shared("capacity") as known:
            if key not in known:
                batching = Batching(caps.max_num_seqs, caps.max_num_batched_tokens)
                scheduler = self._scheduler(Policy(), batching, Admission(), Preemption(), Predictor())
                known[key] = self._saturate(scheduler, self.arrivals(-1)).rate
            return float(known[key])

    def knee(self, accuracy: float, max_requests: int) -> float:
        """The highest rate that the composition sustains: that of a saturated system (Baccelli and Foss, 1995).

        Measured as the capacity is, but under the composition's own batching, admission and preemption, with bursts of ever
        more draws of the workload; of at least eight batches, for a batch must have filled and emptied many times. Policies
        are left out: in a burst of everything, sjf has its short answers first.
        """
        key = self.setting("load")
        with self.shared("knee") as known:
            if key not in known:
                found = self._find_knee(accuracy, max_requests)
                known[key] = {"rate": found.rate, "half_width": min(found.half_width, 1.0), "requests": found.requests}
                if found.half_width > accuracy:
                    within = f"{found.half_width:.1%}" if found.half_width < 1 else "no better than its order of magnitude"
                    console.print(f"load=auto: after {found.requests} requests the knee is known to {within}")
            return float(known[key]["rate"])

    def _find_knee(self, accuracy: float, max_requests: int) -> Saturation:
        fewest, draws = min(max_requests, 8 * self.lab.batching.max_num_seqs), 1
        while True:
            probe = concatenate([self.arrivals(-draw) for draw in range(1, draws + 1)])[:max_requests]
            if not probe:
                raise UserError("load: the knee cannot be found, for the workload is empty")
            draws *= 2
            if len(probe) < fewest:
                continue
            new = build(self.cfg)
            scheduler = self._scheduler(Policy(), new.batching, new.admission, new.preemption, Predictor())
            found = self._saturate(scheduler, probe)
            if found.half_width <= accuracy or 2 * len(probe) > max_requests:
                return found

    def _saturate(self, scheduler: Scheduler, probe: Sequence[Arrival]) -> Saturation:
        """Serve a burst of everything at once."""
        recorder = Recorder(block_size=self.lab.engine.block_size)
        self.run(scheduler, Point(concurrency=len(probe)), -1, probe, recorder)
        ends = sorted(times[-1] for times in recorder.times.values() if times)
        if not ends:
            raise UserError("load: the capacity cannot be measured, for every request of the workload was rejected")
        return saturation(ends, len(probe))
