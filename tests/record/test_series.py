"""Time series: exact averages per interval, whatever the steps' borders."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from slotlab.record.series import MOST, area, by_name, intervals, series_table


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two steps of 0.75 s around a gap: b waits from 0.5 to 2.0 and is served from then on."""
    requests = pd.DataFrame(
        {
            "tenant": ["a", "b"],
            "status": ["finished", "finished"],
            "scheduled_arrival": [0.25, 0.5],
            "started": [0.25, 2.0],
            "first_token": [1.0, 2.75],
            "prompt_tokens": [10, 4],
            "cached_tokens": [0, 0],
            "output_tokens": [1, 1],
            "token_times": [np.array([1.0]), np.array([2.75])],
        }
    )
    steps = pd.DataFrame(
        {
            "start": [0.25, 2.0],
            "duration": [0.75, 0.75],
            "running": [1, 1],
            "kv_used": [4, 2],
            "decode_tokens": [0, 0],
            "prefill_tokens": [10, 4],
            "recomputed_tokens": [0, 0],
        }
    )
    return requests, steps


def test_each_second_has_its_averages():
    requests, steps = tables()
    table = series_table(2, 1, requests, steps)
    assert set(table["point"].to_pylist()) == {2} and set(table["repeat"].to_pylist()) == {1}
    found = by_name(table)
    assert found["queue_depth"] == {0: 0.5, 1: 1.0, 2: 0.0}
    assert found["running"] == {0: 0.75, 1: 0.0, 2: 1.0}, "the last interval ends with the last step"
    assert found["kv_used"] == {0: 3.0, 1: 0.0, 2: 2.0}
    assert found["step_tokens"] == {1: 10.0, 2: 4.0}, "a second in which no step ends has no mean"
    assert found["service_a"] == {0: 0.0, 1: 12.0, 2: 0.0}
    assert found["service_b"][2] == pytest.approx(6.0 / 0.75)


def test_a_long_run_has_longer_intervals():
    requests, steps = tables()
    steps["start"] += 10 * MOST
    edges = intervals(requests, steps)
    assert len(edges) - 1 <= MOST and set(np.diff(edges)[:-1]) == {16.0}


def test_areas_add_up_to_the_whole():
    rng = np.random.default_rng(0)
    entered = rng.uniform(0, 10, 200)
    left, weights = entered + rng.exponential(2, 200), rng.uniform(0, 3, 200)
    edges = np.linspace(0, 30, 61)
    assert area(entered, left, weights, edges).sum() == pytest.approx(((np.minimum(left, 30) - entered) * weights).sum())


def test_without_steps_there_is_no_series():
    requests, steps = tables()
    assert len(series_table(0, 0, requests, steps[:0])) == 0
