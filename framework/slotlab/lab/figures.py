"""All figures of one load point and repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slotlab.lab.bench import Bench
from slotlab.lab.oracle import MOST_TOKENS, oracle_bounds
from slotlab.record.bounds import bound_shares
from slotlab.record.hardware import hardware_metrics
from slotlab.record.metrics import point_metrics
from slotlab.workload import Arrival, Point

if TYPE_CHECKING:
    import pandas as pd


def repeat_figures(
    bench: Bench, point: Point, repeat: int, arrivals: Sequence[Arrival], requests: pd.DataFrame, steps: pd.DataFrame
) -> dict[str, float]:
    """What the tables say, and what they are to be held against: the device's peaks, an oracle."""
    lab = bench.lab
    weights = {arrival.tenant: arrival.weight for arrival in arrivals}
    caps = {"max_num_seqs": lab.batching.max_num_seqs, "num_blocks": lab.engine.num_blocks}
    found = point_metrics(requests, steps, **caps, slo=lab.slo, weights=weights)
    hardware = hardware_metrics(lab.engine.work(), found.get("makespan"))
    return {**found, **bound_shares(steps), **hardware, **_bounds(bench, point, repeat, arrivals, found)}


def _bounds(bench: Bench, point: Point, repeat: int, arrivals: Sequence[Arrival], found: Mapping[str, float]) -> dict[str, float]:
    """What an oracle would have reached; left out on a real engine, and where not everybody was served."""
    wanted = bench.lab.record.wants("oracle", sum(arrival.most_output for arrival in arrivals), MOST_TOKENS)
    served = 0 < found["finished"] == found["offered"]
    return oracle_bounds(bench, point, repeat, arrivals) if wanted and served and not bench.lab.engine.real else {}
