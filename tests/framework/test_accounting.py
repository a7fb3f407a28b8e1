"""What a token counts as: computed for the first time, computed again, or decoded."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from slotlab import Batching, Policy, Request, RequestState
from slotlab.plan import split_work
from slotlab_plugins.batching.continuous import Continuous


def state(computed: int, high: int = 0, prompt: int = 10, emitted: int = 0) -> RequestState:
    req = RequestState.of(Request(0, 0.0, prompt, 100), 0, 1, 0.0)
    req.computed, req.high, req.emitted = computed, high, emitted
    return req


@pytest.mark.parametrize(
    ("computed", "high", "emitted", "n", "expected"),
    [
        (0, 0, 0, 10, (10, 0, 0)),  # a whole prompt
        (0, 0, 0, 4, (4, 0, 0)),  # its first chunk
        (4, 0, 0, 6, (6, 0, 0)),  # its last chunk
        (10, 0, 1, 1, (0, 0, 1)),  # a decode
        (10, 0, 5, 3, (0, 0, 3)),  # three of them in a jump
        (0, 4, 0, 4, (0, 4, 0)),  # evicted after a chunk: up to there it is repetition
        (0, 4, 0, 3, (0, 3, 0)),  # not even up to there
        (0, 4, 0, 10, (6, 4, 0)),  # and beyond
        (3, 4, 0, 7, (6, 1, 0)),  # across the mark
        (4, 4, 0, 6, (6, 0, 0)),  # from the mark on
        (0, 12, 3, 13, (0, 12, 1)),  # evicted while decoding: prompt and output again, then one decode
        (0, 12, 3, 12, (0, 12, 0)),
        (10, 12, 3, 3, (0, 2, 1)),
        (12, 12, 3, 1, (0, 0, 1)),  # only the newest token is new
        (12, 5, 3, 1, (0, 0, 1)),  # swapped back in: nothing is repeated, whatever the old mark
        (6, 0, 0, 4, (4, 0, 0)),  # after a prefix hit of 6
        (0, 10, 1, 11, (0, 10, 1)),  # the mark just at the prompt's end
        (9, 10, 1, 2, (0, 1, 1)),
    ],
)
def test_tokens_are_split_at_the_high_water_mark_and_at_the_prompts_end(computed, high, emitted, n, expected):
    assert split_work(state(computed, high, emitted=emitted), n) == expected
    assert sum(expected) == n


def test_a_split_in_two_chunks_adds_up_to_the_whole():
    emitted = 5
    for high, cut in itertools.product(range(15), range(1, 15)):
        whole = split_work(state(0, high, emitted=emitted), 15)
        parts = split_work(state(0, high, emitted=emitted), cut), split_work(state(cut, high, emitted=emitted), 15 - cut)
        assert whole == tuple(map(sum, zip(*parts, strict=True)))
        assert whole == (max(0, 10 - high), high, 5 - max(0, high - 10))


def test_a_prompt_counts_once_however_often_it_is_computed(run, arrive):
    """Two requests whose prompts fit, but not their outputs: one is evicted and computed again."""
    served = run(arrive([8, 8], prompts=5), blocks=14, size=1, batching=Continuous(2, 4))
    steps = served.tables()["steps"].to_pandas()
    assert steps["prefill_tokens"].sum() == 10
    assert steps["decode_tokens"].sum() == 14
    assert steps["recomputed_tokens"].sum() == sum(req.recomputed for req in served.states) > 0
    assert steps["preempted"].sum() == sum(req.preemptions for req in served.states) > 0


def test_paused_requests_are_counted_in_the_kv_that_is_used(run, arrive):
    """One slot, two requests that take turns: the one without the slot keeps its KV."""

    @dataclass
    class TakeTurns(Policy):
        def order_running(self, running, view):
            return [req for req in running if req.emitted < 2]

    served = run(arrive([4, 4], prompts=3), blocks=20, size=1, policy=TakeTurns(), batching=Batching(1, 64))
    steps = served.tables()["steps"].to_pandas()
    assert list(steps["running"]) == [1, 1, 2, 2, 2, 2, 1, 1]
    assert list(steps["held"]) == [1] * 8
    assert list(steps["kv_used"]) == [3, 4, 7, 8, 9, 10, 5, 6]
    assert list(steps["kv_reserved"]) == list(steps["kv_used"])
