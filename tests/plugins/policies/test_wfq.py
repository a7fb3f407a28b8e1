"""WFQ: start-time fair queueing (Goyal, Vin and Cheng, 1996) by predicted cost."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Batching, Open, Predictor, Request, Result, Status, UserError
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.drr import DRR
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.policies.wfq import WFQ
from slotlab_plugins.preemption.victims import LowestRank

# columns: tenant, output tokens; two slots, all arrive at 0 with prompts of one token, and cost 1 + 2 * output
ROWS = [("a", 10), ("a", 2), ("b", 2), ("b", 2), ("b", 2)]

TABLES = [
    (FCFS(), [10, 2, 4, 6, 8]),
    # a, b (both 0). At 2 both have paid 1 + 2 * 2 = 5: a. At 4 a 6 + 4 + 4 = 14, b 5: b. At 6 b again
    (VTC(), [10, 4, 2, 6, 8]),
    # a owes -4 + 1 = -3 and starts both; then the b, one by one, in the slot that a leaves
    (DRR(quantum=4), [10, 2, 4, 6, 8]),
    # tags of a 0, 21, of b 0, 5, 10: a, b, then both b, at 2 and 4, and a at 6
    (WFQ(), [10, 8, 2, 4, 6]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("policy", "finish"), TABLES)
def test_a_schedule_worked_out_by_hand(run, policy, finish, jump):
    recorder = run([Arrival(0.0, 1, n, n, tenant) for tenant, n in ROWS], deepcopy(policy), slots=2, jump=jump)
    assert [recorder.times[id][-1] for id in range(len(ROWS))] == finish


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 12), tenants=st.integers(2, 4), jump=st.booleans())
def test_what_backlogged_tenants_start_differs_by_one_request_of_each(run, seed, slots, tenants, jump):
    """Theorem 1 of the paper: |W_f / r_f - W_m / r_m| <= l_f / r_f + l_m / r_m, here with right predictions."""
    rng = random.Random(seed)
    shapes = [(rng.choice([1, 3, 60]), rng.choice([1, 4, 50]), rng.choice([0.5, 1.0, 3.0])) for _ in range(tenants)]
    arrivals = []
    for i in range(40 * tenants):
        prompt, output, weight = shapes[i % tenants]
        if rng.random() < 0.3:
            prompt, output = rng.randint(1, prompt), rng.randint(1, output)
        arrivals.append(Arrival(0.0, prompt, output, output, tenant=str(i % tenants), weight=weight))
    largest = {str(i): (prompt + 2 * output) / weight for i, (prompt, output, weight) in enumerate(shapes)}
    started, queued = Counter(dict.fromkeys(largest, 0.0)), Counter(arrival.tenant for arrival in arrivals)

    def watch(plan, result):
        for req, out in zip(plan.tokens, result.emitted, strict=True):
            if req.emitted == out:  # its first step
                started[req.tenant] += (req.prompt_tokens + 2 * req.max_tokens) / req.weight
                queued[req.tenant] -= 1
        if all(queued[tenant] for tenant in largest):
            for f, g in itertools.combinations(largest, 2):
                assert abs(started[f] - started[g]) <= largest[f] + largest[g] + 1e-6

    run(arrivals, WFQ(), slots=slots, jump=jump, watch=watch, batching=Continuous(slots, 10**6))


def service(recorder, seconds):
    """Priced service of each tenant until a time."""
    total = Counter()
    for req in recorder.states:
        got = sum(time <= seconds for time in recorder.times[req.id])
        total[req.tenant] += 2 * got + (req.prompt_tokens if got else 0)
    return total


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.5, "b": 1.0}])
@pytest.mark.parametrize("slots", [1, 4])
def test_backlogged_tenants_share_by_weight_within_a_request(run, weights, slots):
    arrivals = [Arrival(0.0, 3, 6, 6, tenant, weight=weight) for _ in range(200) for tenant, weight in weights.items()]
    got = service(run(arrivals, WFQ(), slots=slots), 400)
    per_weight = [got[tenant] / weight for tenant, weight in weights.items()]
    assert max(per_weight) - min(per_weight) <= slots * 15 / min(weights.values())


def test_shares_are_equal_in_tokens_not_in_requests_even_if_no_length_is_known(run):
    """llm-d/llm-d-router#1182, #1222. Both claim answers of 60 tokens; what they did not use is given back as they finish."""
    kinds = ("long prompts", 30, 2), ("long answers", 1, 30)
    arrivals = [Arrival(0.0, prompt, 60, output, tenant) for _ in range(150) for tenant, prompt, output in kinds]
    got = service(run(arrivals, WFQ(), slots=3, predictor=Predictor()), 600)
    assert abs(got["long answers"] - got["long prompts"]) <= 2 * (30 + 2 * 60) + 3 * 61


def test_a_tenant_that_was_away_gets_no_burst_when_it_returns(run):
    busy = [Arrival(0.0, 1, 4, 4, "a") for _ in range(150)]
    back = [Arrival(0.0, 1, 4, 4, "b")] * 3 + [Arrival(220.0, 1, 4, 4, "b")] * 20
    recorder = run(sorted(busy + back, key=lambda arrival: arrival.time), WFQ())
    order = sorted((req for req in recorder.states if req.started >= 220), key=lambda req: req.started)[:20]
    assert Counter(req.tenant for req in order) == {"a": 10, "b": 10}


def test_new_tenants_with_short_requests_cannot_starve_a_long_one(run):
    """By finish tags each newcomer, with a tag near the virtual time, would go before the one of 50 tokens."""
    arrivals = [Arrival(0.0, 1, 1, 1, "first"), Arrival(0.0, 1, 50, 50, "long")]
    arrivals += [Arrival(float(i), 1, 1, 1, f"new {i}") for i in range(40)]
    assert run(arrivals, WFQ()).states[1].started == 1.0


@dataclass
class Nosy(WFQ):
    """Looks at the whole order before it answers."""

    def order(self, waiting, view):
        assert [*super().order(waiting, view)] == [*super().order(waiting, view)]
        assert len([*super().order(waiting, view)]) == len(waiting)
        return super().order(waiting, view)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), slots=st.integers(1, 5), blocks=st.sampled_from([40, 80, 4096]), known=st.booleans())
def test_jumps_and_looks_at_the_order_change_nothing(run, seed, slots, blocks, known):
    rng, time, arrivals = random.Random(seed), 0.0, []
    for _ in range(40):
        time += rng.choice([0.0, 0.0, 3.0, 20.0])
        prompt, output, tenant = rng.choice([1, 5, 25]), rng.choice([1, 6, 15]), rng.choice("aabc")
        arrivals.append(Arrival(time, prompt, 15, output, tenant, weight={"a": 0.3, "b": 2.5}.get(tenant, 1.0)))
    options = {"slots": slots, "blocks": blocks, "preemption": LowestRank(), **({} if known else {"predictor": Predictor()})}
    single = run(arrivals, WFQ(), jump=False, **options)
    assert run(arrivals, WFQ(), **options).times == single.times
    assert run(arrivals, Nosy(), jump=False, **options).times == single.times


def test_a_start_that_is_undone_moves_neither_tags_nor_virtual_time():
    @dataclass
    class ByThrees(Batching):
        def gate(self, view):
            return Open(min_new=3)

    policy = WFQ()
    scheduler = Scheduler(BlockPool(64, 1), policy, ByThrees(4, 64))
    for id, tenant in enumerate("aa"):
        scheduler.submit(Request(id, 0.0, 5, 5, tenant), 0.0)
    assert not scheduler.plan(0.0)
    assert (policy.counter("a"), policy._virtual, policy._started) == (0.0, 0.0, {})
    scheduler.submit(Request(2, 0.0, 7, 5, "b"), 0.0)
    assert policy.counter("b") == 0.0
    assert len(scheduler.plan(0.0).tokens) == 3
    assert (policy.counter("a"), policy.counter("b")) == (30.0, 17.0)


def test_an_abort_pays_for_what_was_emitted_and_leaves_nothing_behind():
    policy = WFQ()
    scheduler = Scheduler(BlockPool(64, 1), policy)
    states = [scheduler.submit(Request(id, 0.0, 5, 5, str(id % 50)), 0.0) for id in range(1000)]
    plan = scheduler.plan(0.0)
    scheduler.commit(plan, Result([1.0], [int(req.remaining == n) for req, n in plan.tokens.items()]), 1.0)
    ran = [req for req in states if req.emitted]
    assert ran
    for state in states:
        scheduler.abort(state)
        assert state.status is Status.ABORTED
    assert policy._tokens == Counter(req.tenant for req in ran for _ in range(5 + 2))
    assert not (policy._paid or policy._started)


@pytest.mark.parametrize("name", ["input_price", "output_price"])
def test_an_option_out_of_range_is_refused_in_one_line(name):
    with pytest.raises(UserError) as error:
        WFQ(**{name: -1})
    assert str(error.value) == f"{name}=-1: must be at least 0 and at most 1000000"
