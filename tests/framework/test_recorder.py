"""What is written down of a run: who sat where, and how each request ended."""

from __future__ import annotations

import pytest

from slotlab.record.recorder import Recorder
from slotlab.record.tables import requests_table
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.static import Static


def chart(served):
    """One string per slot, one letter per step: prefill, decode, recompute or held, with the request's id."""
    rows = served.tables()["slots"].to_pylist()
    steps = served.recorder.count
    cells = {(row["slot"], row["step"]): f"{row['kind'][0]}{row['request']}" for row in rows}
    assert len(cells) == len(rows), "two requests in one slot"
    return [
        " ".join(cells.get((slot, step), "--") for step in range(steps)) for slot in range(1 + max(slot for slot, _ in cells))
    ]


@pytest.mark.parametrize("jump", [False, True])
def test_a_slot_is_handed_on_at_once_by_continuous_batching(run, arrive, jump):
    served = run(arrive([3, 1, 2]), batching=Continuous(2, 64), jump=jump)
    assert chart(served) == ["p0 d0 d0", "p1 p2 d2"]
    assert [row["held"] for row in served.tables()["steps"].to_pylist()] == [2, 2, 2]


@pytest.mark.parametrize("jump", [False, True])
def test_a_slot_is_held_to_the_end_of_the_batch_by_static_batching(run, arrive, jump):
    served = run(arrive([4, 1, 2]), batching=Static(2, 64), jump=jump)
    assert chart(served) == ["p0 d0 d0 d0 p2 d2", "p1 h1 h1 h1 -- --"]
    steps = served.tables()["steps"].to_pandas()
    assert list(steps["held"]) == [2, 2, 2, 2, 1, 1]
    assert list(steps["computing"]) == [2, 1, 1, 1, 1, 1]
    assert list(steps["bound"]) == ["slots", "gate", "gate", "gate", "none", "none"]


def test_a_preempted_request_computes_again_in_whatever_slot_is_free(run, arrive):
    served = run(arrive([3, 3], prompts=3), blocks=7, size=1, batching=Continuous(2, 64))
    assert chart(served) == ["p0 d0 d0 r1 d1", "p1 -- -- -- --"], "the lowest free slot"
    again = served.tables()["requests"].to_pylist()[1]
    assert (again["preemptions"], again["recomputed_tokens"], again["token_times"]) == (1, 3, [1.0, 4.0, 5.0])


def test_a_run_that_is_interrupted_keeps_its_rows_and_calls_the_rest_aborted(bench):
    desk, recorder = bench(blocks=8, batching=Continuous(1, 64)), Recorder(block_size=1)
    for req in (desk.submit(2, 1), desk.submit(9, 9), desk.submit(2, 3), desk.submit(2, 3)):
        recorder.submitted(req)
    for _ in range(2):
        plan = desk.plan()
        desk.execute(plan)
        for req in plan.tokens:
            recorder.times[req.id].append(desk.now)
    rows = requests_table(recorder).to_pylist()
    assert [row["status"] for row in rows] == ["finished", "rejected", "aborted", "aborted"]
    assert [row["finish"] for row in rows] == [1.0, None, None, None]
    assert [row["first_token"] for row in rows] == [1.0, None, 2.0, None]
    assert [row["output_tokens"] for row in rows] == [1, 0, 1, 0]
    assert [row["reason"] is None for row in rows] == [True, False, True, True]
