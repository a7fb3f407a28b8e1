"""What must hold for every composition of plugins, above all when the KV cache is far too small."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Point, Request, Status
from slotlab.record.schema import write_table

shapes = st.tuples(st.integers(1, 6), st.integers(3, 24), st.sampled_from([1, 2, 4, 8]))  # slots, blocks, tokens per block
workloads = st.tuples(
    st.integers(0, 10**6), st.integers(1, 24), st.integers(1, 30), st.integers(1, 16), st.sampled_from([0.5, 5.0, 100.0])
)


def expected_status(arrival: Arrival, seq: int, names: Sequence[str], blocks: int, size: int) -> Status | None:
    """Rejected iff it could outgrow the whole pool, or iff the admission says so; None: that depends on the queue."""
    if names[2] in ("impatient", "queue_timeout"):
        return None
    too_big = math.ceil((arrival.prompt_tokens + arrival.max_tokens - 1) / size) > blocks
    unlucky = names[2] == "capricious" and seq % 7 == 6
    return Status.REJECTED if too_big or unlucky else Status.FINISHED


@settings(max_examples=600, deadline=None, derandomize=True)
@given(data=st.data(), shape=shapes, workload=workloads, unit=st.booleans(), cache=st.booleans())
def test_every_request_ends_with_all_its_tokens_or_with_a_reason(
    run, build, compositions, draw_arrivals, data, shape, workload, unit, cache
):
    names, (slots, blocks, size), arrivals = data.draw(compositions), shape, draw_arrivals(*workload)
    options = {"content": not unit, "prefix_cache": cache, "cost": "unit" if unit else "linear"}
    served = run(arrivals, blocks=blocks, size=size, **options, **build(names, slots))
    assert [req.id for req in served.states] == list(range(len(arrivals)))
    for req, arrival in zip(served.states, arrivals, strict=True):
        assert req.status is (expected_status(arrival, req.seq, names, blocks, size) or req.status)
        assert bool(req.reason) == (req.status is Status.REJECTED)
        tokens = arrival.output_tokens if req.status is Status.FINISHED else 0
        assert served.engine.emitted[req.id] == list(range(tokens)), "tokens lost, repeated, or out of order"
        assert len(served.recorder.times[req.id]) == req.emitted == tokens
        assert req.bypassed <= 3
    books = served.scheduler.books
    assert books.pool.available == blocks, "blocks are missing at the end"
    assert not (books.running or books.waiting or books.held or books.prefilling)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), shape=shapes, workload=workloads, cache=st.booleans())
def test_the_steps_add_up_to_the_plans_and_to_the_requests(run, build, compositions, draw_arrivals, data, shape, workload, cache):
    (slots, blocks, size), arrivals = shape, draw_arrivals(*workload)
    plugins = build(data.draw(compositions), slots)
    served = run(arrivals, blocks=blocks, size=size, prefix_cache=cache, **plugins)
    steps = served.tables()["steps"].to_pandas()
    first, again, decoded = (int(steps[name].sum()) for name in ("prefill_tokens", "recomputed_tokens", "decode_tokens"))
    assert [first, again, decoded] == served.scheduler.work
    assert first + again + decoded == sum(sum(plan.values()) for plan in served.plans)
    finished = [req for req in served.states if req.status is Status.FINISHED]
    assert first == sum(req.prompt_tokens - req.cached for req in finished), "a prompt token was counted as new twice, or never"
    assert again == sum(req.recomputed for req in served.states)
    assert decoded == sum(req.emitted - 1 for req in finished), "the last token is never computed"
    assert (steps["kv_used"] <= steps["kv_reserved"]).all()
    assert (steps["kv_reserved"] <= blocks).all()
    assert steps["preempted"].sum() >= sum(req.preemptions for req in served.states)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(data=st.data(), shape=shapes, workload=workloads, clients=st.sampled_from([None, None, 1, 3]), cache=st.booleans())
def test_jumps_equal_single_steps_and_a_run_equals_its_repetition(
    run, build, compositions, draw_arrivals, data, shape, workload, clients, cache
):
    (slots, blocks, size), arrivals, names = shape, draw_arrivals(*workload), data.draw(compositions)
    single, again, jumped = (
        run(
            arrivals,
            blocks=blocks,
            size=size,
            jump=jump,
            cost="linear",
            point=Point(concurrency=clients),
            prefix_cache=cache,
            **build(names, slots),
        ).tables()
        for jump in (False, False, True)
    )
    for name, table in single.items():
        assert table.equals(again[name]), f"{name}: not deterministic"
        assert table.equals(jumped[name]), f"{name}: a jump is not its single steps"


def test_tables_of_jumps_and_of_single_steps_are_the_same_bytes(run, build, draw_arrivals, tmp_path: Path):
    arrivals = draw_arrivals(7, 60, 30, 40, 3.0)
    names, files = ("vtc", "continuous", "prompt", "lowest_rank", "none"), []
    for jump in (False, True):
        served = run(arrivals, blocks=24, size=8, jump=jump, cost="linear", **build(names, 4))
        assert (len(served.recorder.steps) < served.recorder.count) == jump, "nothing jumped, or what should not"
        folder = tmp_path / str(jump)
        folder.mkdir()
        for name, table in served.tables().items():
            write_table(table, folder / f"{name}.parquet")
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(data=st.data(), shape=shapes, workload=workloads)
def test_aborts_at_any_time_leave_nothing_behind(bench, build, compositions, draw_arrivals, data, shape, workload):
    (slots, blocks, size), rng = shape, random.Random(workload[0])
    desk = bench(blocks, size, **build(data.draw(compositions), slots))
    arrivals, states = draw_arrivals(*workload), []
    while len(states) < len(arrivals) or desk.scheduler.unfinished:
        for arrival in arrivals[len(states) : len(states) + rng.randint(0, 3)]:
            req = Request(len(states), desk.now, arrival.prompt_tokens, arrival.max_tokens, arrival.tenant, arrival.priority)
            states.append(desk.scheduler.submit(req, desk.now, arrival.output_tokens))
        if states and rng.random() < 0.3:
            desk.scheduler.abort(rng.choice(states))
        if plan := desk.plan():
            desk.execute(plan)
        elif desk.scheduler.unfinished:
            desk.now = plan.until if plan.until < math.inf else desk.now + 1.0
    assert desk.free == blocks
    counts = {status: sum(req.status is status for req in states) for status in Status}
    assert len(states) == counts[Status.FINISHED] + counts[Status.REJECTED] + counts[Status.ABORTED]
    assert [req.seq for req in sorted(desk.scheduler.departed(), key=lambda req: req.seq)] == list(range(len(states)))
