"""The figures of the first issue, which can be checked by hand: request-level against iteration-level batching."""

from __future__ import annotations

import pytest

from slotlab.record.metrics import SLO, point_metrics
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.static import Static

LENGTHS = [6, 2, 8, 3, 5, 2, 7, 3]
ALL_AT_ONCE, MID_FLIGHT = [0.0] * 8, [0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 4.0, 6.0]


def figures(run, arrivals, batching, jump):
    tables = run(arrivals, batching=batching(4, 512), jump=jump).tables()
    requests, steps = tables["requests"].to_pandas(), tables["steps"].to_pandas()
    return point_metrics(requests, steps, max_num_seqs=4, num_blocks=64, slo=SLO(), weights={})


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(
    ("batching", "times", "utilisation", "latency", "makespan"),
    [
        (Static, ALL_AT_ONCE, 0.60, 8.5, 15),
        (Continuous, ALL_AT_ONCE, 0.75, 6.5, 12),
        (Static, MID_FLIGHT, 0.60, 6.75, 15),
        (Continuous, MID_FLIGHT, 0.75, 4.75, 12),
    ],
)
def test_static_against_continuous(run, arrive, batching, times, utilisation, latency, makespan, jump):
    found = figures(run, arrive(LENGTHS, times=times), batching, jump)
    assert found["slot_utilisation"] == pytest.approx(utilisation, abs=1e-12)
    assert (found["e2e_mean"], found["makespan"]) == (latency, makespan)


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("batching", "efficiency"), [(Static, 0.38), (Continuous, 1.0)])
def test_a_long_answer_pads_its_static_batch(run, arrive, batching, efficiency, jump):
    found = figures(run, arrive([10, 50, 200, 500]), batching, jump)
    assert found["batch_efficiency"] == pytest.approx(efficiency, abs=1e-12)
    assert found["slot_utilisation"] == pytest.approx(0.38, abs=1e-12)
