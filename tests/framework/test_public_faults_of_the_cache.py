"""Faults in the KV cache that other schedulers had in public, each as the smallest scenario that would show it here.

Numbers are of vllm-project/vllm unless a repository is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slotlab import Admission, Evict, Policy, Preemption, Request, Status
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import LowestRank


@dataclass
class Chunk(Admission):
    """Commits the first chunk only."""

    def reserve(self, req, view):
        return 0


def test_a_request_larger_than_the_cache_is_refused_and_does_not_block_the_queue(run, arrive):
    """#35541, #39734: it was retried at the head of the queue for ever."""
    served = run(arrive([1, 1], prompts=[20, 4]), blocks=4, size=4)
    assert [req.status for req in served.states] == [Status.REJECTED, Status.FINISHED]
    assert served.states[0].reason == "needs 5 KV blocks of 4"


def test_the_last_running_request_cannot_outgrow_the_cache(run, arrive):
    """sgl-project/sglang#15626: the server crashed when nobody was left to retract."""
    served = run(arrive([10, 3], prompts=14), blocks=4, size=4)
    assert [req.status for req in served.states] == [Status.REJECTED, Status.FINISHED]
    assert served.recorder.times[1] == [1.0, 2.0, 3.0]


def test_a_victim_that_was_already_scheduled_in_the_step_is_rolled_back(bench):
    """#23347, #21528: more tokens were scheduled than requests ran."""
    desk = bench(blocks=4, size=2, policy=Priority(), preemption=LowestRank())
    low, high = desk.submit(3, 4, priority=1), desk.submit(3, 5, priority=0)
    desk.step()
    assert (low.num_blocks, high.num_blocks, desk.free) == (2, 2, 0)
    desk.step()
    plan = desk.plan()  # low takes a token, then high needs a block
    assert plan.tokens == {high: 1}
    assert (low.status, low.num_blocks, low.computed, plan.preempted) == (Status.PREEMPTED, 0, 0, 1)


def test_nobody_loses_a_step_because_a_paused_request_before_it_was_evicted(bench):
    """#49097: the index into the running list was off by one."""

    @dataclass
    class PauseFirst(Policy):
        def order_running(self, running, view):
            return [req for req in running if req.id]

    @dataclass
    class Paused(Preemption):
        def victims(self, need, requester, candidates, view):
            return [Evict(req) for req in candidates if req.id == 0]

    desk = bench(blocks=8, policy=PauseFirst(), preemption=Paused(), batching=Continuous(3, 64))
    background, x, y = desk.submit(2, 3), desk.submit(2, 3), desk.submit(3, 3)
    desk.step()
    plan = desk.step()  # x takes the last block, y evicts the paused one
    assert plan.tokens == {x: 1, y: 1}
    assert background.status is Status.PREEMPTED


def test_one_eviction_serves_a_whole_boundary(bench):
    """inference-sim/inference-sim#349: 102,000 preemptions and no completion, from a list changed while it was walked."""
    desk = bench(blocks=6, size=4)
    reqs = [desk.submit(8, 3) for _ in range(3)]
    desk.step()
    assert desk.free == 0
    plan = desk.step()
    assert plan.preempted == 1
    assert plan.tokens == {reqs[0]: 1, reqs[1]: 1}
    assert [req.status for req in desk.run_dry()] == [Status.FINISHED] * 3
    assert sum(req.preemptions for req in reqs) == 1


def test_a_refused_allocation_changes_nothing():
    """inference-sim/inference-sim#1061, RBLN-SW/vllm-rbln#676: blocks of a half-done allocation were orphaned."""
    pool = BlockPool(4, 2)
    holder, other = (Scheduler(pool).submit(Request(i, 0.0, 1, 1), 0.0) for i in range(2))
    assert pool.grow(holder, 3)
    before = list(pool.free), list(other.blocks), other.capacity
    assert not pool.grow(other, 6)
    assert (pool.free, other.blocks, other.capacity) == before
    assert pool.shortage(other, 6) == 1
    pool.release(holder)
    assert sorted(pool.free) == [0, 1, 2, 3]


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 7, 64])
def test_chunks_that_end_inside_a_block_write_every_slot_once(run, arrive, tokens):
    """inference-sim/inference-sim#197: progress ran ahead of what was written."""
    served = run(arrive([4, 3], prompts=[13, 6]), blocks=9, size=4, content=True, batching=Continuous(2, tokens))
    assert sum(sum(plan.values()) for plan in served.plans) == 13 + 6 + 3 + 2


@pytest.mark.parametrize("prompt", [3, 4, 5])
def test_a_new_block_is_there_just_when_the_first_token_goes_into_it(bench, prompt):
    """GeeeekExplorer/nano-vllm#240, #71: off by one at the block boundary."""
    desk = bench(blocks=9, size=4)
    req = desk.submit(prompt, 9)
    for computed in range(prompt, prompt + 6):
        desk.step()
        assert (req.computed, req.num_blocks) == (computed, -(-computed // 4))


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("prompt", range(1, 12))
def test_no_step_goes_beyond_the_context_nor_below_one_token(bench, prompt, evict):
    """#50342, #53812, #53962: two paths sized the last step differently by one, after a preemption too."""

    @dataclass
    class Now(Preemption):
        def victims(self, need, requester, candidates, view):
            return [Evict(req) for req in candidates if req is not requester]

    context = 12
    desk = bench(blocks=24, max_context=context, policy=Priority(displace=True), batching=Continuous(1, 64), preemption=Now())
    req = desk.submit(prompt, context + 1 - prompt, priority=1)
    assert desk.submit(prompt, context + 2 - prompt, priority=1).status is Status.REJECTED
    while req.emitted < req.max_tokens - 1:
        desk.step()
    if evict:  # just before its last token
        desk.submit(1, 1, priority=0)
        desk.step()
        assert req.status is Status.PREEMPTED
    plan = desk.step()
    assert plan.tokens == {req: context if evict or prompt == context else 1}
    assert (req.status, prompt + req.emitted - 1) == (Status.FINISHED, context)


@pytest.mark.parametrize("paused", [False, True])
def test_of_two_half_prefilled_requests_that_do_not_fit_together_one_gives_up(bench, paused):
    """#45387: each held a part of the cache, neither could go on."""

    @dataclass
    class Perhaps(Policy):
        def order_running(self, running, view):
            return [] if paused else running

    desk = bench(blocks=12, policy=Perhaps(), admission=Chunk(), batching=Continuous(2, 4))
    desk.submit(10, 2), desk.submit(10, 2)
    assert [req.status for req in desk.run_dry()] == [Status.FINISHED] * 2


def test_nobody_is_aborted_while_the_engine_may_write_to_its_blocks(bench):
    """vllm-project/vllm-ascend#14055, #32255: blocks were reused while the device still wrote."""
    desk = bench()
    req = desk.submit(3)
    plan = desk.plan()
    with pytest.raises(AssertionError, match="abort must wait for the step in flight"):
        desk.scheduler.abort(req)
    desk.execute(plan)
    desk.scheduler.abort(req)
    assert desk.free == 64


@pytest.mark.parametrize("blocks", range(9, 26))
def test_preemption_neither_repeats_nor_loses_a_token(run, arrive, blocks):
    """#38624, #49620, vllm-project/vllm-gaudi#1794: output in flight was kept or dropped wrongly."""
    served = run(arrive([5] * 4, prompts=5), blocks=blocks, size=1, content=True)
    assert [served.engine.emitted[i] for i in range(4)] == [list(range(5))] * 4
    assert (sum(req.preemptions for req in served.states) > 0) == (blocks > 9), "with 9 they run one by one"


def alike(tokens):
    """Content of blocks of one token: everybody's first `tokens` are the same."""
    return lambda req, block: (0 if block < tokens else req.id + 1, block)


def test_a_prefix_hit_is_counted_once_however_often_the_request_is_tried(bench):
    """#43736, #44431, #45202, #48860: the hit rate was inflated by retries."""
    desk = bench(blocks=20, content=alike(2))
    first = desk.submit(8, 9)
    desk.step()
    blocked = desk.submit(15, 2)
    for _ in range(7):
        desk.step()
    assert (blocked.status, blocked.cached) == (Status.WAITING, 0)
    desk.scheduler.abort(first)
    assert desk.step().tokens == {blocked: 13}
    assert blocked.cached == 2


def test_computing_again_after_a_preemption_is_no_prefix_hit(run, arrive):
    """#25780: a hit rate of 30 % on random data."""
    served = run(arrive([8, 8], prompts=5), blocks=14, size=1, prefix_cache=True)
    assert sum(req.preemptions for req in served.states) > 0
    assert served.tables()["requests"].column("cached_tokens").to_pylist() == [0, 0]


def test_a_cached_prefix_is_not_counted_twice_in_what_a_request_needs(bench):
    """sgl-project/sglang#948: a request that just fits was refused for ever."""
    desk = bench(blocks=8, content=alike(5))
    desk.submit(8, 1)
    desk.step()
    req = desk.submit(8, 1)
    assert desk.step().tokens == {req: 3}
    assert (req.status, req.cached) == (Status.FINISHED, 5)


def test_who_has_just_finished_is_nobodys_victim(bench):
    """#28702 and sgl-project/sglang's preempt_to_schedule: its blocks were freed twice."""
    offered = []

    @dataclass
    class Recording(Preemption):
        def victims(self, need, requester, candidates, view):
            offered.extend(candidates)
            return [Evict(req) for req in reversed(candidates)]

    desk = bench(blocks=8, size=1, preemption=Recording())
    done, first, second = desk.submit(2, 1), desk.submit(3, 9 - 3), desk.submit(3, 4)
    desk.step()
    assert (done.status, desk.free) == (Status.FINISHED, 2)
    desk.step()
    assert not offered, "what it left was enough"
    desk.step()
    assert done not in offered
    assert {first, second} == set(offered)


def test_one_free_block_at_a_boundary_of_large_blocks_goes_to_one_request(bench):
    """sgl-project/sglang#9989, #14939, #14972: retraction freed too little where blocks hold more than one token."""
    desk = bench(blocks=4, size=64)
    reqs = [desk.submit(64, 3) for _ in range(3)]
    desk.step()
    assert desk.free == 1
    plan = desk.step()
    assert plan.tokens == {reqs[0]: 1, reqs[1]: 1}
    assert reqs[2].status is Status.PREEMPTED
