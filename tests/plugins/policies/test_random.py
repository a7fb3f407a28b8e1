"""Random: an order that the seed gives, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from slotlab import Arrival
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.lifo import LIFO
from slotlab_plugins.policies.random import Random

# One slot, one token each: the k-th to start ends at k. Keys are the first 64 bits of SHA-256("seed/order/seq/0"), here / 2^64.
DRAWN = [
    # .25 .91 .22 .33 .69 .04: first 5, then 2, 0, 3, 4, 1
    (0, [3, 6, 2, 4, 5, 1]),
    # .86 .06 .38 .65 .57 .85: first 1, then 2, 4, 3, 5, 0
    (1, [6, 1, 2, 4, 3, 5]),
]


def finish(run, policy, requests=6, **options):
    recorder = run([Arrival(0.0, 1, 1, 1)] * requests, policy, **options)
    return [recorder.times[id][-1] for id in range(requests)]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize(("seed", "expected"), DRAWN)
def test_the_seed_is_the_order_on_every_machine(run, seed, expected, jump):
    assert finish(run, Random(seed), jump=jump) == expected


def test_it_is_neither_first_nor_last_come_first_served(run):
    assert [finish(run, FCFS()), finish(run, LIFO())] == [[1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]]
    assert all(expected not in ([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1]) for _, expected in DRAWN)


def test_two_requests_keep_their_order_whoever_else_comes(run):
    few, many = finish(run, Random(7)), finish(run, Random(7), requests=40)[:6]
    assert sorted(range(6), key=few.__getitem__) == sorted(range(6), key=many.__getitem__)


def test_a_preempted_request_keeps_its_place(run):
    """9 blocks for ten requests of 3 + 6 tokens: some are evicted, and go on before anybody starts who comes after them."""
    recorder = run([Arrival(0.0, 3, 6, 6)] * 10, Random(), slots=2, blocks=9)
    assert any(req.preemptions for req in recorder.states)
    starts, ends = [req.started for req in recorder.states], [recorder.times[id][-1] for id in range(10)]
    assert sorted(range(10), key=starts.__getitem__) == sorted(range(10), key=ends.__getitem__)


def test_over_many_seeds_no_order_is_preferred(run):
    orders = Counter(tuple(finish(run, Random(seed), requests=3)) for seed in range(600))
    assert len(orders) == 6
    assert max(orders.values()) < 140, "100 expected of each, standard deviation 9"
