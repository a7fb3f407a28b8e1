"""Our engine, in the environment of the project: `python serve_slotlab.py FOLDER REQUESTS`."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import floor
import torch
from jobs import SLOTS, TOKENS_PER_STEP, VOCAB, read
from protocol import answer

import slotlab
from slotlab import Arrival, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.workload import Point
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.paged import Paged
from slotlab_plugins.models.llama import Folder
from slotlab_plugins.policies.fcfs import FCFS

BLOCKS, BLOCK_SIZE = 1024, 16


class Clocked(Paged):
    """A paged engine with given prompts, which adds up the seconds inside the forward passes of the model."""

    def open(self, model: Any) -> Any:
        told = super().open(model)
        forward = self.runner.model.forward

        def timed(*args: Any) -> torch.Tensor:
            start = perf_counter()
            logits = forward(*args)
            self.inside += perf_counter() - start
            return logits

        self.inside, self.runner.model.forward = 0.0, timed  # type: ignore[method-assign]
        return told


def main(folder: Path, jobs_file: Path) -> None:
    """Serve whenever told to; the first answer also has our share of the floor."""
    jobs = read(jobs_file)
    arrivals = [Arrival(0.0, len(job.prompt), job.output, job.output) for job in jobs]
    engine = Clocked("cpu", BLOCK_SIZE, BLOCKS, dtype="bf16")
    told = engine.open(Folder(str(folder)))

    def once() -> dict[str, Any]:
        engine.begin(arrivals, Streams(0))
        engine._ids.update({id: list(job.prompt) for id, job in enumerate(jobs)})
        engine.inside = 0.0
        scheduler = Scheduler(BlockPool(BLOCKS, BLOCK_SIZE), FCFS(), Continuous(SLOTS, TOKENS_PER_STEP))
        start, recorder = perf_counter(), Recorder()
        serve(source(arrivals, Point()), scheduler, engine, engine.clock(), recorder)
        wall = perf_counter() - start
        outputs = {req.id: engine.output(req) for req in recorder.states}
        return {
            "outputs": [outputs[id] for id in range(len(jobs))],
            "host_share": 1 - engine.inside / wall,
            "steps": recorder.count,
        }

    assert engine.runner.model.shape.vocab == VOCAB
    shares = floor.shares(engine)
    answer(once, {"slotlab": slotlab.__version__, "torch": torch.__version__, **told, **shares})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
