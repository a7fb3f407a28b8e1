"""The prefix cache: what is found, what is kept, what is overwritten. Some are faults that others had in public.

Numbers are of vllm-project/vllm unless a repository is named.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Arrival, Mode, Status, Streams
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.batching.orca import Orca
from slotlab_plugins.batching.prefill_first import PrefillFirst
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import LowestRank, Newest
from slotlab_plugins.prompts import Conversations, Texts


class Prompts(dict[int, str]):
    """Prompts written out, one letter per token; what follows them is the request's own."""

    def __init__(self, *prompts: str, size: int = 2) -> None:
        super().__init__(enumerate(prompts))
        self.size = size

    def __call__(self, req, block):
        text = self[req.id] + f"<{req.id}>" * 100
        return text[block * self.size : (block + 1) * self.size]


def desk_of(bench, *prompts: str, size: int = 2, blocks: int = 16, **options):
    """A bench whose requests have these prompts, in the order of submission."""
    desk = bench(blocks, size, content=Prompts(*prompts, size=size), **options)
    desk.ask = lambda max_tokens=1: desk.submit(len(prompts[desk.scheduler.arrivals]), max_tokens)
    return desk


def test_a_prompt_that_is_cached_to_the_end_computes_its_last_block_again(bench):
    """nano-vllm#144, #3239, #17999: a prompt of whole blocks, all of them cached, left nothing to compute."""
    desk = desk_of(bench, "abcd", "abcd")
    for cached, computed in ((0, 4), (2, 2)):
        req = desk.ask()
        assert desk.step().tokens == {req: computed}
        assert (req.status, req.cached) == (Status.FINISHED, cached)


@pytest.mark.parametrize(("prefix", "cached"), [(3, 0), (4, 4), (5, 4)])
def test_a_prefix_is_shared_in_whole_blocks(bench, prefix, cached):
    """sgl-project/sglang#22819: wrong where the shared length was the block size, or one off."""
    desk = desk_of(bench, "aaaaaaaa"[:prefix] + "xyz", "aaaaaaaa"[:prefix] + "uvw", size=4)
    desk.ask()
    desk.step()
    req = desk.ask()
    desk.step()
    assert req.cached == cached


def test_a_running_request_shares_its_prompt_and_its_blocks_are_held_twice(bench):
    desk = desk_of(bench, "abcdef", "abcdxy")
    first = desk.ask(max_tokens=5)
    desk.step()
    second = desk.ask(max_tokens=5)
    assert desk.step().tokens == {first: 1, second: 2}
    assert second.blocks[:2] == first.blocks[:2] and second.blocks[2] != first.blocks[2]
    assert desk.free == 16 - len({*first.blocks, *second.blocks})
    desk.scheduler.abort(first)
    assert desk.step().tokens == {second: 1}


def test_what_is_computed_while_a_request_waits_is_found_when_it_starts(bench):
    desk = desk_of(bench, "abcdef", "abcdef", batching=Continuous(1, 64))
    desk.ask(), desk.ask()
    assert [*desk.step().tokens.values(), *desk.step().tokens.values()] == [6, 2]


def test_a_cache_full_of_idle_prefixes_gives_way(bench):
    """InternLM/lmdeploy#4100: blocks that could be overwritten did not count as free, and the queue was stuck."""
    desk = desk_of(bench, "abcdefgh", "stuvwxyz", "abcdefgh", blocks=4)
    for _ in range(3):
        req = desk.ask()
        assert len(desk.step().tokens) == 1
        assert (req.status, req.cached, desk.free) == (Status.FINISHED, 0, 4)


def test_of_idle_blocks_the_least_recently_used_and_of_one_prompt_the_last_goes_first(bench):
    """Six blocks, three for each prompt, two of them full: x takes the two free ones and overwrites the second of a; a, which
    finds its first, takes a free one and overwrites the second of b; b finds its first."""
    desk = desk_of(bench, "aaaaa", "bbbbb", "xxxxx", "aaaaa", "bbbbb", blocks=6)
    for cached in (0, 0, 0, 2, 2):
        req = desk.ask()
        desk.step()
        assert req.cached == cached


def test_a_block_that_is_found_is_pinned_before_anybody_takes_it(bench):
    """#37076, #37164: one request found a cached block, another took it before the first had pinned it."""
    desk = desk_of(bench, "abc", "xyzuvw", "abx", "uvwxyz", blocks=4)
    desk.ask()
    desk.step()
    large, small = desk.ask(max_tokens=2), desk.ask(max_tokens=2)
    desk.step()
    assert small.cached == 0, "the larger one, before it, has overwritten the block"
    assert large.num_blocks == 3 and small.status is Status.WAITING
    desk.run_dry()


def test_a_prefix_that_others_hold_is_no_gain_for_whoever_displaces(bench):
    """Evicting a sharer frees only what is its own; the plan must not promise more."""
    policy = Priority(displace=True)
    desk = desk_of(bench, "abcdef", "abcdxy", "12345678", "1234567812", blocks=6, policy=policy, preemption=Newest())
    low = [desk.submit(6, 3, priority=1), None]
    desk.step()
    low[1] = desk.submit(6, 3, priority=1)
    desk.step()
    assert desk.free == 6 - 5
    urgent = desk.submit(8, 1, priority=0)
    desk.step()
    assert urgent.status is Status.FINISHED
    assert [req.preemptions for req in low] == [1, 1], "one alone would have given up a single block"


def test_a_preempted_request_finds_its_own_blocks_and_that_is_no_hit(bench):
    """#25780: what is computed again after a preemption was counted as a prefix hit."""
    desk = desk_of(bench, "abcdef", "uvwxyz", blocks=6, preemption=Newest())
    first, second = desk.ask(max_tokens=4), desk.ask(max_tokens=4)
    desk.run_dry()
    assert second.preemptions == 1 and second.recomputed < 6, "it found some of what it had computed"
    assert first.cached == second.cached == 0


def test_an_aborted_chunk_is_kept_as_far_as_it_was_computed(bench):
    """sgl-project/sglang#38319, #37316: pages of an aborted chunk were freed and still matched."""
    desk = desk_of(bench, "abcdefgh", "abcdefgh", batching=Continuous(4, 5))
    first = desk.ask()
    desk.step()
    desk.scheduler.abort(first)
    second = desk.ask()
    assert desk.step().tokens == {second: 4}
    assert second.cached == 4


def test_a_block_whose_predecessor_was_overwritten_is_found_by_nobody(bench):
    """Two that compute the same prompt at once: the second's later blocks follow the first's, which go before them."""
    desk = desk_of(bench, "abcd", "abcdef", "uvwxyz12", "abcdef", blocks=8)
    first, second = desk.ask(), desk.ask(max_tokens=3)
    desk.step()
    assert first.status is Status.FINISHED and second.num_blocks == 3
    third = desk.ask()  # of three free blocks the second takes one; this takes two, and overwrites both of the first
    assert desk.step().tokens == {second: 1, third: 8}
    desk.run_dry()
    fourth = desk.ask()
    desk.step()
    assert fourth.cached == 0, "the third block of the second is still there, but not what was before it"


def test_the_view_tells_what_is_cached_and_what_two_prompts_share(bench):
    desk = desk_of(bench, "abcdef", "abcdxy", "abuvwx")
    desk.ask()
    desk.step()
    view = desk.scheduler.view
    second, third = desk.ask(), desk.ask()
    assert (view.prefix_hits(second), view.prefix_hits(third)) == (4, 2)
    assert view.shared_prefix(second, third) == 2
    desk.run_dry()
    without = bench(8, 2)
    assert without.scheduler.view.prefix_hits(without.submit(4, 1)) == 0


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 2, 4, 8]))
def test_names_of_blocks_are_alike_where_their_tokens_are(seed, size):
    """The simulated engine, which has no tokens, finds the prefix hits that the paged one would find."""
    rng, arrivals = random.Random(seed), list[Arrival]()
    answers = [rng.randint(1, 9) for _ in range(8)]
    for i in range(8):
        follows = rng.choice([None, *range(i)])
        begin = arrivals[follows].prompt_tokens + answers[follows] if follows is not None else 0
        group, prefix = (rng.choice([None, 0, 1]), rng.randint(0, 12)) if follows is None else (None, 0)
        prompt = max(begin, prefix) + rng.randint(1, 9)
        arrivals.append(Arrival(0.0, prompt, 9, answers[i], prefix_group=group, prefix_tokens=prefix, follows=follows))
    ids, texts = Conversations(arrivals, Streams(seed), 1 << 40, {}), Texts(arrivals, size)
    blocks = []
    for i, arrival in enumerate(arrivals):
        known = [*ids[i], *(-100 * i - n for n in range(1, answers[i] + 1))]
        ids[i] = known
        texts.lengths[i] = len(known)
        assert len(known) == arrival.prompt_tokens + answers[i]
        blocks += [(texts.content(i, b), tuple(known[: (b + 1) * size])) for b in range(len(known) // size)]
    for name, tokens in blocks:
        for other, more in blocks:
            assert (name == other) == (tokens == more)


def test_blocks_that_a_swapped_request_was_never_copied_back_to_are_found_by_nobody(run):
    """A request that comes back from host memory is displaced in the same step: its new blocks hold nothing of it."""
    rows = [(3, 2, 3, 2, 1), (4, 3, 6, 0, 2), (6, 5, 1, 0, 4)]
    arrivals = [
        Arrival(float(time), prompt, output, output, priority=priority, prefix_group=0, prefix_tokens=prefix)
        for time, prompt, output, priority, prefix in rows
    ]
    options = {"policy": Priority(aging=1.0, displace=True), "preemption": LowestRank(Mode.SWAP), "batching": Continuous(1, 64)}
    served = run(arrivals, blocks=8, size=1, content=True, prefix_cache=True, **options)
    assert served.states[0].preemptions > 0 and all(req.status is Status.FINISHED for req in served.states)


@pytest.mark.parametrize("batching", [Orca, PrefillFirst])
def test_a_jump_ends_before_a_block_is_overwritten_that_a_waiting_request_would_share(run, batching):
    rows = [(1, 9, 10, 0, 8), (2, 5, 7, 0, 4), (2, 7, 5, None, 0)]
    arrivals = [Arrival(float(t), p, n, n, prefix_group=group, prefix_tokens=shared) for t, p, n, group, shared in rows]
    single, jumped = (
        run(arrivals, blocks=26, size=1, prefix_cache=True, jump=jump, batching=batching(4, 6)).tables()["requests"]
        for jump in (False, True)
    )
    assert single.equals(jumped)
