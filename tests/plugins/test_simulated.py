"""The simulated engine: what a step costs, how far it jumps, and who ends."""

from __future__ import annotations

import math

import pytest

from slotlab import Arrival, Plan, Request, RequestState, Streams
from slotlab_plugins.engines.simulated import Simulated


def decoding(id: int, computed: int, emitted: int, prompt: int = 4, cap: int = 100) -> RequestState:
    req = RequestState.of(Request(id, 0.0, prompt, cap), id, 1, 0.0)
    req.computed, req.emitted = computed, emitted
    return req


def engine(lengths: list[int], **options) -> Simulated:
    made = Simulated(**options)
    made.begin([Arrival(0.0, 4, 100, n) for n in lengths], Streams(0))
    return made


def test_linear_cost_counts_steps_tokens_and_context():
    made = engine([10, 10], per_step=1.0, per_token=0.1, per_context=0.01)
    plan = Plan(tokens={decoding(0, 4, 1): 1, decoding(1, 0, 0): 3})
    assert made.submit(plan).result().durations == [pytest.approx(1.0 + 0.1 * 4 + 0.01 * 4)]
    assert (made.time_unit, engine([1], cost="unit").time_unit) == ("s", "step")


def test_a_token_comes_out_when_all_known_tokens_are_computed():
    chunk, whole, decode, last = decoding(0, 0, 0), decoding(1, 0, 0), decoding(2, 4, 1), decoding(3, 12, 9)
    result = engine([10] * 4).submit(Plan(tokens={chunk: 3, whole: 4, decode: 1, last: 1})).result()
    assert (result.emitted, result.stopped) == ([0, 1, 1, 1], [last])


@pytest.mark.parametrize(
    ("repeat", "until", "lengths", "steps"),
    [
        (50, math.inf, [10, 20], 9),  # the first one has 9 to go
        (4, math.inf, [10, 20], 4),
        (50, 4.0, [10, 20], 4),  # steps begin at 0, 1, 2, 3
        (50, 3.5, [10, 20], 4),
        (50, 0.0, [10, 20], 1),
        (1, math.inf, [10, 20], 1),
    ],
)
def test_a_jump_ends_with_the_first_completion_before_the_next_event(repeat, until, lengths, steps):
    plan = Plan(tokens={decoding(0, 4, 1): 1, decoding(1, 4, 1): 1}, repeat=repeat, until=until)
    result = engine(lengths, cost="unit").submit(plan).result()
    assert (result.durations, result.emitted) == ([1.0] * steps, [steps] * 2)
    assert [req.id for req in result.stopped] == ([0] if steps == 9 else [])
    assert engine(lengths, cost="unit", jump=False).submit(plan).result().durations == [1.0]


def test_the_cap_ends_a_request_before_its_length():
    req = decoding(0, 6, 3, cap=4)
    assert engine([10]).submit(Plan(tokens={req: 1})).result().stopped == [req]
