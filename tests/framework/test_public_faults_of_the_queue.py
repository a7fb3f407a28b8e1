"""Faults in queues and slots that other schedulers had in public, each as the smallest scenario that would show it here.

Numbers are of vllm-project/vllm unless a repository is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slotlab import Admission, Arrival, Batching, Hold, Phase, Policy, Request, Result, Status, StepBudget
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.static import Static
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.predictors.basic import Oracle
from slotlab_plugins.preemption.victims import LowestRank


def test_a_request_that_is_never_told_to_stop_ends_at_its_cap(bench):
    """#51299: it held its slot for ever."""
    desk = bench()
    req = desk.submit(3, 5)
    assert desk.run_dry() == [req]
    assert (req.status, req.emitted) == (Status.FINISHED, 5)


def test_a_preempted_request_keeps_its_place_and_is_not_preempted_again_and_again(bench):
    """#41951, #51574: among equals it went behind those that came after it."""
    desk = bench(blocks=8, policy=Priority(), preemption=LowestRank())
    first, second = desk.submit(3, 6, priority=1), desk.submit(3, 6, priority=1)
    desk.step()
    desk.step()
    third = desk.submit(1, 1, priority=1)
    desk.step()
    assert second.status is Status.PREEMPTED
    while second.status is not Status.RUNNING:
        assert third.status is Status.WAITING, "a later arrival of the same class went first"
        desk.step()
    desk.run_dry()
    assert (first.preemptions, second.preemptions) == (0, 1)


def test_waiting_requests_are_looked_at_while_running_ones_use_up_the_tokens(bench):
    """#44731, #41784: the hooks for the queue never fired while the budget was full."""
    asked = []

    @dataclass
    class Looking(Policy):
        def order(self, waiting, view):
            asked.append(view.step)
            return waiting

    desk = bench(blocks=200, policy=Looking(), batching=Continuous(4, 2))
    desk.submit(1, 50), desk.submit(1, 50)
    desk.step()
    late = desk.submit(3, 2)
    for _ in range(49):
        assert desk.step().bound == "tokens"
    assert len(asked) == 50
    desk.step()
    assert late.status is Status.RUNNING


def test_held_requests_take_no_slots_and_aborted_ones_give_them_back(bench):
    """#53130: slots were counted for deferred requests that had gone."""

    @dataclass
    class HoldBig(Admission):
        def admit(self, req, view):
            return Hold(view.now + 100) if req.prompt_tokens > 1 else super().admit(req, view)

    desk = bench(admission=HoldBig(), batching=Continuous(2, 64))
    held, running = [desk.submit(5) for _ in range(4)], [desk.submit(1) for _ in range(2)]
    desk.step()
    for req in (*held, *running):
        desk.scheduler.abort(req)
    late = desk.submit(1)
    assert desk.step().tokens == {late: 1}
    assert not desk.scheduler.books.held


@pytest.mark.parametrize("prefills", range(1, 9))
def test_the_gap_between_tokens_does_not_grow_with_the_number_of_prefills(run, arrive, prefills):
    """kekzl/imp#1725: chunks were capped, their number was not."""

    @dataclass
    class DecodeFirst(Batching):
        def budget(self, view):
            return StepBudget(16, 32, Phase.DECODE_FIRST)

    arrivals = arrive([40] + [2] * prefills, prompts=[1] + [100] * prefills, times=[0.0] + [3.0] * prefills)
    served = run(arrivals, batching=DecodeFirst(16, 32))
    assert served.recorder.times[0] == [float(i) for i in range(1, 41)]
    assert max(sum(plan.values()) for plan in served.plans) <= 32


@pytest.mark.parametrize("crowd", [10, 20, 40])
def test_a_long_request_starves_under_sjf_and_not_under_sjf_with_aging(run, crowd):
    """sgl-project/sglang#31954: without aging a cold request waited for as long as hot ones kept coming."""
    arrivals = [Arrival(0.0, 1, 10, 10), *(Arrival(2.0 * i, 1, 2, 2) for i in range(crowd))]
    for aging, start in ((0.0, 2.0 * crowd), (1.0, 8.0)):
        served = run(arrivals, policy=SJF(aging), batching=Continuous(1, 64), predictor=Oracle())
        assert served.states[0].started == start


def test_a_quota_above_the_budget_is_clamped(run, arrive):
    """NVIDIA/TensorRT-LLM#13318, #9628: an assertion in one thread stopped the server without a word."""

    @dataclass
    class Greedy(Batching):
        def quota(self, req, left, view):
            return 10**9

    served = run(arrive([2, 2], prompts=50), batching=Greedy(2, 16), blocks=99)
    assert max(sum(plan.values()) for plan in served.plans) == 16


def test_aborted_requests_pin_nothing(bench):
    """llm-d/llm-d-router, program-aware policy: state was kept per abandoned request."""
    policy = VTC()
    desk = bench(policy=policy)
    oldest = desk.submit(1, 8, tenant="patient")
    for i in range(300):
        req = desk.submit(1, 8, tenant=f"t{i % 5}")
        if i % 3 == 0:
            desk.step()
        desk.scheduler.abort(req)
    desk.scheduler.abort(oldest)
    waiting = desk.scheduler.books.waiting
    assert not (policy._paid or waiting or waiting.lanes() or waiting._ages or desk.scheduler.books.running)
    assert desk.free == 64


@pytest.mark.parametrize("make", [FCFS, lambda: SJF(aging=2.0), lambda: Priority(displace=True), VTC])
def test_two_replicas_whose_clocks_differ_decide_alike(make):
    """MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#184: ranks disagreed and one of them hung."""
    plans = []
    for skew in (0.0, 17.3):
        scheduler = Scheduler(BlockPool(30, 1), make(), Continuous(3, 8), preemption=LowestRank(), predictor=Oracle())
        log: list[dict[int, int]] = []
        for step in range(40):
            now = step + skew * step
            if step < 12:
                req = Request(step, float(step), 1 + step % 5, 9, "ab"[step % 2], priority=step * 7 % 3)
                scheduler.submit(req, now, 1 + step * 5 % 9)
            if plan := scheduler.plan(now):
                log.append({req.id: n for req, n in plan.tokens.items()})
                scheduler.commit(plan, Result([1.0], [int(req.remaining == n) for req, n in plan.tokens.items()]), now)
        plans.append(log)
    assert plans[0] == plans[1]


@pytest.mark.parametrize("moment", ["held", "waiting", "prefilling", "decoding", "preempted", "finished", "rejected"])
def test_an_abort_in_any_state_leaves_no_slot_taken(bench, moment):
    """Avarok-Cybersecurity/atlas#368: slots leaked when clients went away."""

    @dataclass
    class HoldTenant(Admission):
        def admit(self, req, view):
            return Hold(view.now + 50) if req.tenant == "held" else super().admit(req, view)

    desk = bench(blocks=12, policy=Priority(displace=True), admission=HoldTenant(), batching=Continuous(1, 4))
    tokens = {"rejected": 99, "finished": 1}.get(moment, 3)
    if moment == "waiting":
        desk.submit(2, 3)
    req = desk.submit(8 if moment == "prefilling" else 2, tokens, tenant="held" if moment == "held" else "t", priority=1)
    if moment not in ("held", "rejected"):
        desk.step()
    if moment == "preempted":
        desk.submit(2, 3)
        desk.step()
    assert req.status.value == {"prefilling": "running", "decoding": "running"}.get(moment, moment)
    ended = req.status in (Status.FINISHED, Status.REJECTED)
    desk.scheduler.abort(req)
    desk.scheduler.abort(req)
    assert (req.status is Status.ABORTED) != ended
    desk.run_dry()
    assert desk.free == 12


@pytest.mark.parametrize("batching", [Continuous, Static])
def test_who_waits_at_the_last_completion_is_started_though_nobody_arrives(run, arrive, batching):
    """inference-sim/inference-sim#519: the engine idled with work in the queue."""
    assert run(arrive([3, 2]), batching=batching(1, 64)).finish() == [3.0, 5.0]


def test_more_decodes_than_tokens_leave_no_negative_chunk(bench):
    """microsoft/sarathi-serve: the chunk of a started prefill was what remained of the budget, below zero too."""
    desk = bench(batching=Continuous(8, 12))
    decodes, prefill = [desk.submit(1, 20) for _ in range(6)], desk.submit(20, 2)
    desk.step()
    desk.scheduler.plugins.batching.max_num_batched_tokens = 4
    for _ in range(3):
        assert desk.step().tokens == dict.fromkeys(decodes[:4], 1)
    assert (prefill.status, prefill.computed) == (Status.RUNNING, 6)
