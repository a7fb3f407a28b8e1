"""DRR: whose turn it is, and for how long (Shreedhar and Varghese, 1995), with lengths that are known afterwards."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Batching, Open, Request, RequestState, UserError, Waiting
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.policies.drr import DRR
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.preemption.victims import LowestRank

# columns: tenant, output tokens; all arrive at 0 with prompts of one token, and cost 1 + 2 * output
TURNS = [("a", 2), ("a", 2), ("a", 2), ("a", 2), ("b", 2), ("b", 2), ("b", 2)]
DEBT = [("a", 10), ("a", 2), ("b", 2), ("b", 2), ("b", 2), ("b", 2), ("b", 2)]

TABLES = [
    (TURNS, FCFS(), [2, 4, 6, 8, 10, 12, 14]),
    # a 5 (counter 0), b 5 (0), a 10 (5), b 10 (5) ...: they alternate
    (TURNS, VTC(), [2, 6, 10, 14, 4, 8, 12]),
    # a owes -8, -3, 2 after two requests; b the same; a 2 - 8 = -6, -1, 4; b -6 and has no third request
    (TURNS, DRR(quantum=8), [2, 4, 10, 12, 6, 8, 14]),
    (DEBT, FCFS(), [10, 12, 14, 16, 18, 20, 22]),
    # a has had 21, more than b before each of its five: 0, 5, 10, 15, 20
    (DEBT, VTC(), [10, 22, 12, 14, 16, 18, 20]),
    # a owes -8 + 21 = 13; b two: -8 + 10 = 2; a's turn: 13 - 8 = 5, passed over; b two more: 2 - 8 + 10 = 4;
    # a's turn: 5 - 8 = -3: its second request; b's fifth
    (DEBT, DRR(quantum=8), [10, 20, 12, 14, 16, 18, 22]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("table", "policy", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, table, policy, finish, jump):
    recorder = run([Arrival(0.0, 1, n, n, tenant) for tenant, n in table], deepcopy(policy), jump=jump)
    assert [recorder.times[id][-1] for id in range(len(table))] == finish


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    slots=st.integers(1, 12),
    tenants=st.integers(2, 4),
    quantum=st.sampled_from([1, 30, 400]),
    jump=st.booleans(),
)
def test_the_service_gap_of_backlogged_tenants_is_bounded_by_a_quantum_and_what_a_batch_can_owe(
    backlogged_gap, seed, slots, tenants, quantum, jump
):
    """As for VTC, all are backlogged from start to end; the bound is that of DRR with a batch in place of a packet."""
    shapes, gap = backlogged_gap(DRR(quantum=quantum), seed, slots, tenants, jump)
    owed = max(prompt for prompt, _ in shapes) + 2 * slots * max(output for _, output in shapes)
    assert gap <= quantum + owed


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 1.0}])
@pytest.mark.parametrize("slots", [1, 4])
def test_backlogged_tenants_share_by_weight_within_a_quantum(run, weights, slots):
    arrivals = [Arrival(0.0, 3, 6, 6, tenant, weight=weight) for _ in range(200) for tenant, weight in weights.items()]
    recorder, service = run(arrivals, DRR(quantum=60), slots=slots), Counter()
    for req in recorder.states:
        got = sum(time <= 400 for time in recorder.times[req.id])
        service[req.tenant] += 2 * got + (req.prompt_tokens if got else 0)
    per_weight = [service[tenant] / weight for tenant, weight in weights.items()]
    assert max(per_weight) - min(per_weight) <= 60 + slots * 15 / min(weights.values())


def test_shares_are_equal_in_tokens_not_in_requests(run):
    """llm-d/llm-d-router#1182, #1222: tiny prompts with long answers got more than their share."""
    kinds = ("long prompts", 30, 2), ("long answers", 1, 30)
    arrivals = [Arrival(0.0, prompt, output, output, tenant) for _ in range(150) for tenant, prompt, output in kinds]
    recorder, service = run(arrivals, DRR(quantum=60), slots=3), Counter()
    for req in recorder.states:
        got = sum(time <= 600 for time in recorder.times[req.id])
        service[req.tenant] += 2 * got + (req.prompt_tokens if got else 0)
    assert abs(service["long answers"] - service["long prompts"]) <= 60 + 3 * 61


def test_a_tenant_that_was_away_brings_no_credit_and_has_repaid_its_debt(run):
    """a owes 101 - 10 at time 50 and is away until 100, for more turns of b than it owes; then they take turns."""
    rows = [(0.0, 50, "a"), *[(0.0, 2, "b")] * 60, *[(100.0, 2, "a")] * 10]
    recorder = run([Arrival(time, 1, n, n, tenant) for time, n, tenant in rows], DRR(quantum=5), slots=1)
    later = sorted((req for req in recorder.states if req.started >= 100), key=lambda req: req.started)[:20]
    assert Counter(req.tenant for req in later) == {"a": 10, "b": 10}


@dataclass
class Nosy(DRR):
    """Looks at the whole order before it answers."""

    def order(self, waiting, view):
        assert [*super().order(waiting, view)] == [*super().order(waiting, view)]
        assert len([*super().order(waiting, view)]) == len(waiting)
        return super().order(waiting, view)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 5), blocks=st.sampled_from([40, 80, 4096]), quantum=st.integers(1, 60))
def test_jumps_and_looks_at_the_order_change_nothing(run, seed, slots, blocks, quantum):
    rng, time, arrivals = random.Random(seed), 0.0, []
    for _ in range(40):
        time += rng.choice([0.0, 0.0, 3.0, 20.0])
        prompt, output, tenant = rng.choice([1, 5, 25]), rng.choice([1, 6, 15]), rng.choice("aabc")
        arrivals.append(Arrival(time, prompt, output, output, tenant, weight={"a": 0.3, "b": 2.5}.get(tenant, 1.0)))
    options = {"slots": slots, "blocks": blocks, "preemption": LowestRank()}
    single = run(arrivals, DRR(quantum=quantum), jump=False, **options)
    assert run(arrivals, DRR(quantum=quantum), **options).times == single.times
    assert run(arrivals, Nosy(quantum=quantum), jump=False, **options).times == single.times


def test_a_jump_lasts_as_long_as_the_turn(run):
    """b's next prompt of 61 does not fit beside its decode; that decode ends the turn when it has cost 20 - 1, in 10 steps."""
    rows = [("b", 1, 40), ("b", 61, 1), ("a", 1, 2)]
    recorders = [run([Arrival(0.0, p, n, n, t) for t, p, n in rows], DRR(quantum=20), slots=2, blocks=61, jump=j) for j in (0, 1)]
    for recorder in recorders:
        assert [req.started for req in recorder.states] == [0.0, 40.0, 10.0]
    assert len(recorders[1].steps) < 10 < len(recorders[0].steps)


def test_a_start_that_is_undone_is_refunded():
    @dataclass
    class ByThrees(Batching):
        def gate(self, view):
            return Open(min_new=3)

    policy = DRR(quantum=8)
    scheduler = Scheduler(BlockPool(64, 1), policy, ByThrees(4, 64))
    for id, tenant in enumerate("ab"):
        scheduler.submit(Request(id, 0.0, 5, 5, tenant), 0.0)
    for _ in range(5):
        assert not scheduler.plan(0.0)
    assert [policy.owes(tenant) for tenant in "ab"] == [-5, -5], "what it takes for the request, and no more each time"


def test_one_started_out_of_turn_pays_and_does_not_turn_the_ring():
    """As by a modifier, while the order is being pulled."""
    policy = DRR(quantum=100)
    waiting, reqs = Waiting(policy), [RequestState.of(Request(i, 0.0, 5, 5, "aab"[i]), i, 5, 0.0) for i in range(3)]
    for req in reqs:
        policy.arrived(req, None)
        waiting.add(req)
    order = policy.order(waiting, None)
    assert next(order) is reqs[0]
    waiting.remove(reqs[2])
    policy.started(reqs[2], 0)
    assert [req.id for req in order] == [1]
    assert (policy.owes("a"), policy.owes("b")) == (0, 5)


def test_nothing_is_kept_of_requests_that_were_aborted():
    policy = DRR()
    scheduler = Scheduler(BlockPool(64, 1), policy)
    states = [scheduler.submit(Request(id, 0.0, 5, 5, str(id % 50)), 0.0) for id in range(1000)]
    for state in states:
        scheduler.abort(state)
    assert not (policy._ring or policy._paid or policy._tokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantum": 0}, "quantum=0: must be at least 1 and at most 1000000000"),
        ({"input_price": -1}, "input_price=-1: must be at least 0 and at most 1000000"),
        ({"output_price": -1}, "output_price=-1: must be at least 0 and at most 1000000"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(options, message):
    with pytest.raises(UserError) as error:
        DRR(**options)
    assert str(error.value) == message
