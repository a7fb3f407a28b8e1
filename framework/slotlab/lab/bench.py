"""One load point served, and the capacity of an engine."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from omegaconf import DictConfig

from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.errors import UserError
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption
from slotlab.lab.config import Lab, build, science
from slotlab.lab.folder import read_json, write_json
from slotlab.record.recorder import Recorder
from slotlab.record.seats import Seats
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.streams import Streams
from slotlab.workload import Arrival, Point

SLOT_CHART_CELLS = 200_000  # most cells (slot x step) that are written down without being asked


@dataclass
class Bench:
    """An opened engine, and the scheduling plugins that each load point and repeat gets anew."""

    cfg: DictConfig
    lab: Lab
    folder: Path  # of the sweep, or of a single run
    predictor: str

    def arrivals(self, repeat: int) -> list[Arrival]:
        """The requests of one repeat."""
        return list(self.lab.workload.draw(Streams(self.lab.seed, repeat)))

    def recorder(self, index: int, repeat: int, arrivals: Sequence[Arrival], progress: Callable[[int], None]) -> Recorder:
        """An empty recorder for a load point and repeat; it charts the slots of small runs."""
        batching, engine = self.lab.batching, self.lab.engine
        cells = batching.max_num_seqs * sum(arrival.output_tokens for arrival in arrivals)
        seats = Seats(batching.keeps_slots, chart=cells <= SLOT_CHART_CELLS)
        return Recorder(index, repeat, engine.block_size, self.predictor, seats, progress)

    def serve(self, point: Point, repeat: int, arrivals: Sequence[Arrival], recorder: Recorder) -> None:
        """Serve `arrivals` under new plugins. What was recorded is there even if that is interrupted."""
        new = build(self.cfg)
        scheduler = self._scheduler(new.policy, new.batching, new.admission, new.preemption, new.predictor)
        self._run(scheduler, point, repeat, arrivals, recorder)
        if len(arrivals) > 1 and scheduler.books.waiting.indifferent and type(new.policy).key is not Policy.key:
            recorder.remarks.append("all keys are equal: the policy acts as fcfs")

    def _run(self, scheduler: Scheduler, point: Point, repeat: int, arrivals: Sequence[Arrival], recorder: Recorder) -> None:
        engine = self.lab.engine
        engine.begin(arrivals, Streams(self.lab.seed, repeat))
        serve(source(arrivals, point), scheduler, engine, engine.clock(), recorder, lambda id: arrivals[id].output_tokens)

    def _scheduler(
        self, policy: Policy, batching: Batching, admission: Admission, preemption: Preemption, predictor: Predictor
    ) -> Scheduler:
        engine = self.lab.engine
        pool = BlockPool(engine.num_blocks, engine.block_size)
        context = self.lab.model.max_context() if engine.real else sys.maxsize
        return Scheduler(pool, policy, batching, admission, preemption, predictor, max_context=context)

    def capacity(self) -> float:
        """Requests per second that the engine completes when it never runs dry.

        All requests of a repeat of their own arrive at once, under fcfs and continuous batching with the same caps; what
        counts is the time between the first and the last tenth of the answers. Measured by the first job of a sweep.
        """
        plain = science(self.cfg)
        parts = {name: plain[name] for name in ("engine", "model", "workload", "seed")}
        key = hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]
        path = self.folder / "capacity.json"
        with FileLock(self.folder / ".capacity.lock"):
            known = read_json(path) if path.exists() else {}
            if key not in known:
                known[key] = self._measure_capacity()
                write_json(path, known)
        return float(known[key])

    def _measure_capacity(self) -> float:
        caps = self.lab.batching
        batching = Batching(caps.max_num_seqs, caps.max_num_batched_tokens)
        scheduler = self._scheduler(Policy(), batching, Admission(), Preemption(), Predictor())
        recorder = Recorder(block_size=self.lab.engine.block_size)
        probe = self.arrivals(-1)
        self._run(scheduler, Point(concurrency=len(probe)), -1, probe, recorder)
        ends = sorted(times[-1] for times in recorder.times.values() if times)
        if not ends:
            raise UserError("load=multiples: the capacity cannot be measured, for every request of the workload was rejected")
        first, last = len(ends) // 10, len(ends) * 9 // 10
        steady = last > first and ends[last] > ends[first]
        return (last - first) / (ends[last] - ends[first]) if steady else len(ends) / ends[-1]
