"""How much KV a request is given at its start, and who therefore waits. Steps of one time unit, blocks of one token."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Request
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.admission.chunk import Chunk
from slotlab_plugins.admission.peak import Peak
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.admission.reserve_max import ReserveMax
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.predictors.basic import Oracle

# prompt, output, cap; 12 blocks, steps of at most 4 tokens
WORK = [(3, 3, 5), (2, 3, 5), (4, 2, 6), (6, 1, 1)]

TABLES = [
    # tokens: A3 B1 | A1 B1 C2 | A1 B1 C2 | B1 C1 | D4 | D2. Committed: 3 + 2 | 4 + 2 + 4 | 5 + 3 + 4 | 4 + 5, and 6 do not fit
    (Prompt, [3, 4, 4, 6]),
    # the same, but at 3 the two tokens of D that the step has left fit beside 4 + 5: ... | B1 C1 D2 | D4
    (Chunk, [3, 4, 4, 5]),
    # most: 7, 6, 9, 6; no two of them fit, in this order: A3 | A1 | A1 | B2 | B1 | B1 | C4 | C1 | D4 | D2
    (ReserveMax, [3, 6, 8, 10]),
    # C may not join at 1: when A ends, at 3, there would be A5 B3 C5 = 13; it may at 2: then C4 only, 12. D may not join at 3,
    # when B ends with 4 beside C5 and D6 (in one step) = 15; it may at 4, beside C5:
    # A3 B1 | A1 B1 | A1 B1 C2 | B1 C2 | C1 D3 | D3
    (Peak, [3, 4, 5, 6]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("admission", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, admission, finish, jump):
    arrivals = [Arrival(0.0, prompt, cap, output) for prompt, output, cap in WORK]
    recorder = run(arrivals, FCFS(), blocks=12, batching=Continuous(4, 4), admission=admission(), jump=jump)
    assert [recorder.times[id][-1] for id in range(4)] == finish
    assert not any(req.preemptions for req in recorder.states)


def test_prompts_that_do_not_fit_together_start_under_chunk_alone(run):
    """A6 and B6 in 10 blocks, steps of 4: at 2 A has 7 and B's second chunk would make 5 more, so B is evicted."""
    arrivals = [Arrival(0.0, 6, 3, 3), Arrival(0.0, 6, 2, 2)]
    runs = [run(arrivals, FCFS(), blocks=10, batching=Continuous(4, 4), admission=kind()) for kind in (Chunk, Prompt)]
    assert [[req.preemptions for req in recorder.states] for recorder in runs] == [[0, 1], [0, 0]]
    assert [recorder.times[1][-1] for recorder in runs] == [7, 7]


def draw(seed: int) -> list[Arrival]:
    rng = random.Random(seed)
    rows = [(rng.uniform(0, 30), rng.randint(1, 9), rng.randint(1, 20)) for _ in range(20)]
    return [Arrival(time, prompt, output + rng.randint(0, 9), output) for time, prompt, output in sorted(rows)]


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_preempted_who_has_got_all_it_may_need(run, seed):
    recorder = run(draw(seed), FCFS(), blocks=40, batching=Continuous(8, 16), admission=ReserveMax())
    assert not any(req.preemptions for req in recorder.states)


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_preempted_whose_batch_was_foreseen(run, seed):
    """True lengths, and steps that have a token for everybody; the prompt alone would have been too bold."""
    peak, prompt = (run(draw(seed), FCFS(), blocks=40, batching=Continuous(8, 512), admission=kind()) for kind in (Peak, Prompt))
    assert not any(req.preemptions for req in peak.states)
    assert any(req.preemptions for req in prompt.states)


def highest(batch: list[tuple[int, int]], shared: int, block_size: int) -> int:
    """Blocks of a batch of (known tokens, tokens to go) at its peak, step by step; `shared` blocks are common to all."""
    steps = range(max(to_go for _, to_go in batch))
    alive = ([-(-(known + step) // block_size) - shared for known, to_go in batch if to_go > step] for step in steps)
    return max(sum(own) + shared for own in alive)


class Sharing(BlockPool):
    """All requests begin with the same `shared` blocks."""

    shared = 0

    def in_common(self, reqs):
        return (self.shared if i else 0 for i, _ in enumerate(reqs))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(9, 40), st.integers(1, 30)), min_size=1, max_size=8),
    st.integers(0, 2),
    st.sampled_from([1, 4]),
)
def test_the_peak_is_that_of_the_batch_step_by_step_but_for_rounding(batch, shared, size):
    reqs = [type("Req", (), {"prompt_tokens": known, "emitted": 0, "predicted_output": to_go}) for known, to_go in batch]
    pool = Sharing(64, size)
    pool.shared = shared
    tokens, exact = Peak._peak(reqs, Scheduler(pool).view), highest(batch, shared, size) * size
    assert exact <= tokens <= exact + len(batch) * (size - 1)


@pytest.mark.parametrize(("admission", "size"), [(Prompt(watermark=0.9), 1), (Peak(), 4)])
def test_whoever_is_alone_starts(admission, size):
    """Two blocks of 4 tokens are just enough for 5 + 4 - 1 tokens, which with rounding might be 11."""
    scheduler = Scheduler(BlockPool(8 // size, size), FCFS(), admission=admission, predictor=Oracle())
    req = scheduler.submit(Request(0, 0.0, 5, 4), 0.0, 4)
    assert list(scheduler.plan(0.0).tokens) == [req]


@pytest.mark.parametrize("admission", [Chunk, Peak, ReserveMax])
@pytest.mark.parametrize("seed", range(4))
def test_jumps_change_nothing(run, admission, seed):
    one, other = (
        run(draw(seed), FCFS(), blocks=40, batching=Continuous(6, 16), admission=admission(), jump=jump) for jump in (False, True)
    )
    assert one.times == other.times
