"""Admission refuses for its own reserve only: a shortage of KV is the core's to see, under every admission alike.

When `prompt` and `peak` refused for a plain shortage too, and counted shared blocks as new, nobody was displaced or passed over
for want of KV, and a prefix hit was worth nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Admission, Arrival, Misfit, Point, Policy, Quiet, Streams, Verdict
from slotlab.core.prefix import PrefixPool
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.testing.checked import CheckedScheduler
from slotlab_plugins import collect
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.mlfq import MLFQ
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.srpt import SRPT
from slotlab_plugins.predictors.basic import Oracle

OWN_RESERVE = ("watermark", "peak")
ADMISSIONS: dict[str, Callable[[], Admission]] = {
    "prompt": Prompt,  # the default
    **collect("admission"),
    "watermark": partial(Prompt, watermark=0.1),
}
every_admission = pytest.mark.parametrize("admission", ADMISSIONS.values(), ids=list(ADMISSIONS))


@dataclass
class Skipping(Policy):
    """First come, first served; whoever does not fit is passed over."""

    def on_misfit(self, req, why, view):
        return Verdict.SKIP


@dataclass
class Noting(Skipping):
    """Writes down why somebody did not fit, and what the view said then."""

    def __post_init__(self):
        self.refusals = []

    def on_misfit(self, req, why, view):
        self.refusals.append((why, view.free_blocks - view.blocks_to_start(req), view.total_blocks))
        return super().on_misfit(req, why, view)


def serve_shared(arrivals, admission, *, policy=None, blocks, size=16, slots=8, jump=True):
    """Serve `arrivals` in unit steps with a prefix cache and true lengths as predictions."""
    engine = Simulated(cost="unit", num_blocks=blocks, block_size=size, prefix_cache=True, jump=jump)
    engine.begin(arrivals, Streams(0))
    pool = PrefixPool(blocks, size, engine.content)
    scheduler = CheckedScheduler(pool, policy or FCFS(), Continuous(slots, 4096), admission, predictor=Oracle())
    recorder = Recorder(block_size=size)
    serve(source(arrivals, Point()), scheduler, engine, engine.clock(), recorder, lambda id: arrivals[id].output_tokens)
    return recorder


@pytest.mark.parametrize("policy", [partial(Priority, displace=True), SRPT, partial(MLFQ, quantum=8, starvation=99)])
@every_admission
def test_an_urgent_request_that_lacks_kv_displaces_a_worse_one_at_once(run, admission, policy):
    """60 blocks of one token: at 18 two have filled 56 of them, and 6 are needed."""
    arrivals = [Arrival(0.0, 10, 40, 40, priority=5), Arrival(0.0, 10, 40, 40, priority=5), Arrival(18.0, 6, 3, 3)]
    recorder = run(arrivals, policy(), slots=4, blocks=60, admission=admission())
    assert recorder.states[2].started == 18.0


@every_admission
def test_displacement_for_kv_is_all_or_nothing(run, admission):
    """The worse one holds too little: it stays."""
    arrivals = [Arrival(0.0, 40, 5, 5), Arrival(0.0, 5, 9, 9, priority=1), Arrival(2.0, 30, 1, 1)]
    recorder = run(arrivals, Priority(displace=True), slots=4, blocks=60, admission=admission())
    assert recorder.states[2].started == 5.0 and not any(req.preemptions for req in recorder.states)


@every_admission
def test_who_lacks_kv_is_passed_over_by_those_that_fit(run, admission):
    """Beside 30 + 4 of 60 blocks there is no room for 40, but there is for 4 + 2."""
    arrivals = [Arrival(0.0, 30, 5, 5), Arrival(1.0, 40, 5, 5), Arrival(1.0, 4, 2, 2)]
    recorder = run(arrivals, Skipping(), slots=4, blocks=60, admission=admission())
    assert [req.started for req in recorder.states] == [0.0, 5.0, 1.0]


@every_admission
def test_a_shared_prefix_is_counted_once(admission):
    """12 blocks of 16: of the 9 that the second one needs it shares 8, and 3 are free."""
    prefix = {"prefix_group": 0, "prefix_tokens": 128}
    recorder = serve_shared([Arrival(0.0, 129, 20, 20, **prefix), Arrival(2.0, 129, 2, 2, **prefix)], admission(), blocks=12)
    assert recorder.states[1].started == 2.0 and recorder.states[1].cached == 128


@every_admission
def test_requests_with_a_long_prefix_in_common_run_side_by_side(admission):
    """32 blocks hold the prefix of 24 and one block more for each of the eight, and their 31 tokens need no second one."""
    prefix = {"prefix_group": 0, "prefix_tokens": 384}
    arrivals = [Arrival(0.0 if i == 0 else 1.0, 385, 14, 14, **prefix) for i in range(7)]
    recorder = serve_shared(arrivals, admission(), blocks=36)
    assert max(step["running"] for step in recorder.steps) == 7


def shared_arrivals(seed: int, n: int = 16) -> list[Arrival]:
    """Requests of three groups, each with a prefix in common, most of them longer than what is the request's own."""
    rng = random.Random(seed)
    rows = sorted((rng.uniform(0, 40), rng.randint(0, 2), rng.randint(1, 12), rng.randint(1, 20)) for _ in range(n))
    return [Arrival(t, 16 + own, out, out, prefix_group=g, prefix_tokens=16, priority=g) for t, g, own, out in rows]


@pytest.mark.parametrize("seed", range(6))
def test_nobody_is_preempted_whose_batch_was_foreseen_with_what_it_shares(seed):
    recorder = serve_shared(shared_arrivals(seed), ADMISSIONS["peak"](), blocks=24, size=4)
    assert not any(req.preemptions for req in recorder.states)
    assert max(step["running"] for step in recorder.steps) >= 4


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from(sorted(ADMISSIONS)), st.integers(12, 40), st.sampled_from([1, 4]))
def test_a_refusal_is_a_shortage_if_and_only_if_the_start_would_take_more_than_is_free(seed, name, blocks, size):
    policy, whole = Noting(), name not in ("chunk", "reserve_max")
    serve_shared(shared_arrivals(seed), ADMISSIONS[name](), policy=policy, blocks=blocks * 4 // size, size=size)
    for why, spare, total in policy.refusals:
        if why is Misfit.RESERVE:
            assert name in OWN_RESERVE and spare >= 0
            assert name != "watermark" or spare < 0.1 * total
        elif why is Misfit.BLOCKS:
            assert spare < 0 or not whole


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.sampled_from(sorted(ADMISSIONS)),
    st.sampled_from([Skipping, FCFS, partial(Priority, displace=True)]),
)
def test_jumps_change_nothing_where_prefixes_are_shared(seed, name, policy):
    one, other = (
        serve_shared(shared_arrivals(seed), ADMISSIONS[name](), policy=policy(), blocks=24, size=4, jump=jump)
        for jump in (False, True)
    )
    assert one.times == other.times
    assert [req.preemptions for req in one.states] == [req.preemptions for req in other.states]


def test_a_jump_ends_where_a_reserve_becomes_a_shortage(run):
    """Of 20 blocks 4 + 12 are to be taken and 5 kept: refused for the reserve, and once A has grown by 5 for a shortage."""

    @dataclass
    class SkipsShortages(Policy):
        def on_misfit(self, req, why, view):
            return Verdict.SKIP if why is Misfit.BLOCKS else Verdict.STOP

        def quiet(self, view):
            return Quiet()

    arrivals = [Arrival(0.0, 4, 12, 12), Arrival(1.0, 12, 2, 2), Arrival(1.0, 1, 1, 1)]
    single, jumped = (
        run(arrivals, SkipsShortages(), slots=4, blocks=20, admission=Prompt(watermark=0.25), jump=jump) for jump in (False, True)
    )
    assert single.times == jumped.times
    assert single.states[2].started == 5.0
