"""A queue small enough to check by hand: unit steps, one token per running request and step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pytest

from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.kinds import Admission, Batching, Policy, Predictor, Preemption
from slotlab.record.recorder import Recorder
from slotlab.record.schema import REQUESTS, SLOTS, STEPS, pa
from slotlab.record.tables import frames
from slotlab.serve import serve as serve_source
from slotlab.sources import OpenLoop
from slotlab.streams import Streams
from slotlab.workload import Arrival
from slotlab_plugins.engines.simulated import Simulated

Tables = dict[str, pd.DataFrame]
Serve = Callable[..., Tables]


def request_row(id: int, times: Sequence[float] = (), arrival: float = 0.0, **other: Any) -> dict[str, Any]:
    """A request that started one time unit before its first token and finished with its last."""
    first, last = (times[0], times[-1]) if times else (None, None)
    return {
        "point": 0,
        "repeat": 0,
        "id": id,
        "seq": id,
        "tenant": "default",
        "priority": 0,
        "deadline": None,
        "scheduled_arrival": arrival,
        "submitted": arrival,
        "started": None if first is None else first - 1.0,
        "first_token": first,
        "finish": last,
        "status": "finished" if times else "rejected",
        "reason": None if times else "too long",
        "prompt_tokens": 1,
        "max_tokens": 8,
        "output_tokens": len(times),
        "cached_tokens": 0,
        "predicted_output": 8,
        "predictor": "none",
        "preemptions": 0,
        "recomputed_tokens": 0,
        "bypassed": 0,
        "token_times": list(times),
        **other,
    }


def serve_units(
    lengths: Sequence[int],
    arrivals: Sequence[float] | None = None,
    slots: int = 4,
    static: bool = False,
    **columns: Sequence[Any],
) -> Tables:
    """First come, first served in unit steps; `static` lets nobody in until the whole batch has ended."""
    arrivals = arrivals or [0.0] * len(lengths)
    queue, left = sorted(range(len(lengths)), key=lambda i: arrivals[i]), list(lengths)
    seats: dict[int, int] = {}
    times: list[list[float]] = [[] for _ in lengths]
    steps: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    now, step = 0.0, 0
    while queue or any(left[i] for i in seats.values()):
        if not (static and any(left[i] for i in seats.values())):
            seats = {slot: i for slot, i in seats.items() if left[i]}
            free = (slot for slot in range(slots) if slot not in seats)
            while queue and arrivals[queue[0]] <= now and (slot := next(free, None)) is not None:
                seats[slot] = queue.pop(0)
        if not seats:
            now = max(now, arrivals[queue[0]])
            continue
        active = [i for i in seats.values() if left[i]]
        for slot, i in seats.items():
            kind = "prefill" if left[i] == lengths[i] else "decode" if left[i] else "held"
            rows.append({"step": step, "slot": slot, "request": i, "kind": kind, "tokens": int(left[i] > 0)})
        held = slots if static else len(seats)
        first = sum(not times[i] for i in active)
        steps.append(step_row(step, now, len(active), held, prefill_tokens=first, decode_tokens=len(active) - first))
        now, step = now + 1.0, step + 1
        for i in active:
            times[i].append(now)
            left[i] -= 1
    requests = [
        request_row(i, times[i], arrivals[i], **{name: values[i] for name, values in columns.items()})
        for i in range(len(lengths))
    ]
    return {"requests": frame(requests, REQUESTS), "steps": frame(steps, STEPS), "slots": frame(label(rows), SLOTS)}


def step_row(step: int, start: float, computing: int, held: int, **other: Any) -> dict[str, Any]:
    """A unit step."""
    tokens = ("decode_tokens", "prefill_tokens", "recomputed_tokens", "padding_tokens")
    zeros = dict.fromkeys((*tokens, "swapped_blocks", "waiting", "kv_reserved", "preempted", "started"), 0)
    row = {"point": 0, "repeat": 0, "step": step, "start": start, "duration": 1.0, "bound": "none", "kv_used": computing}
    return {**row, **zeros, "computing": computing, "held": held, "running": computing, **other}


def label(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of point 0, repeat 0."""
    return [{"point": 0, "repeat": 0, **row} for row in rows]


def frame(rows: list[dict[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """As read from a run folder."""
    return pa.Table.from_pylist(rows, schema=schema).to_pandas()


@pytest.fixture(scope="session")
def serve() -> Serve:
    """Serve requests of given lengths; returns the tables `requests`, `steps` and `slots`."""
    return serve_units


@pytest.fixture(scope="session")
def requests_of() -> Callable[..., pd.DataFrame]:
    """A table `requests` from rows made with keyword arguments; see `request_row`."""
    return lambda *rows: frame([request_row(**{"id": i, **row}) for i, row in enumerate(rows)], REQUESTS)


@pytest.fixture(scope="session")
def no_steps() -> pd.DataFrame:
    """An empty table `steps`."""
    return frame([], STEPS)


@pytest.fixture(scope="session")
def steps_of() -> Callable[..., pd.DataFrame]:
    """A table `steps` from rows made with keyword arguments; see `step_row`. They follow each other without a gap."""

    def make(*rows: dict[str, Any]) -> pd.DataFrame:
        table, now = [], 0.0
        for i, row in enumerate(rows):
            table.append(step_row(i, now, **{"computing": 1, "held": 1, **row}))
            now += table[-1]["duration"]
        return frame(table, STEPS)

    return make


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Tables]:
    """Serve requests on the simulated engine; see `simulate_requests`."""
    return simulate_requests


def simulate_requests(
    lengths: Sequence[int],
    times: Sequence[float] | None = None,
    prompts: int = 1,
    slots: int = 4,
    tokens: int = 512,
    blocks: int = 10_000,
    **engine: Any,
) -> Tables:
    """The tables `requests` and `steps`: fcfs, continuous batching, blocks of 4 tokens, unit steps unless `engine` says more."""
    arrivals = [Arrival(time, prompts, n, n) for time, n in zip(times or [0.0] * len(lengths), lengths, strict=True)]
    simulated, recorder = Simulated(num_blocks=blocks, block_size=4, **{"cost": "unit", **engine}), Recorder(block_size=4)
    pool = BlockPool(blocks, 4)
    scheduler = Scheduler(pool, Policy(), Batching(slots, tokens), Admission(), Preemption(), Predictor())
    simulated.begin(arrivals, Streams(0))
    serve_source(OpenLoop(arrivals), scheduler, simulated, simulated.clock(), recorder)
    requests, steps = frames(recorder)
    return {"requests": requests, "steps": steps}
