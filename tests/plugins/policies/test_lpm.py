"""LPM: who goes first, given what is cached and who shares with whom (SGLang)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from slotlab import FOREVER, ONE_STEP, Request, RequestState, UserError, Waiting
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.lpm import LPM


@dataclass
class Cache:
    """A view of cached tokens by request, and of tokens shared by those of the same first letter."""

    hits: list[int]
    families: str
    waiting: Waiting = field(default_factory=lambda: queue(0))
    slots_left: int = 1
    looks: int = 0

    def prefix_hits(self, req):
        return self.hits[req.id]

    def shared_prefix(self, a, b):
        self.looks += 1
        return 48 if self.families[a.id] == self.families[b.id] else 0


def queue(n, policy=None):
    waiting = Waiting(policy or LPM())
    for id in range(n):
        waiting.add(RequestState.of(Request(id, 0.0, 100, 1), id, 1, 0.0))
    return waiting


HITS, FAMILIES = [0, 64, 0, 128, 0, 16], "abacde"

TABLES = [
    (FCFS(), [0, 1, 2, 3, 4, 5]),
    # 128, 64, 16, then those without a match in the order of arrival, but 2 shares 48 tokens with 0 and waits for them
    (LPM(), [3, 1, 5, 0, 4, 2]),
    # 48 are not enough to wait for
    (LPM(min_match=49), [3, 1, 5, 0, 2, 4]),
    # 0, 1 and 2 are sorted, the others follow as they came
    (LPM(window=3), [1, 0, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("policy", "expected"), TABLES)
def test_an_order_worked_out_by_hand(policy, expected):
    waiting, cache = queue(6, policy), Cache(HITS, FAMILIES)
    for _ in range(2):
        assert [req.id for req in policy.order(waiting, cache)] == expected


def test_of_several_with_the_same_new_prefix_one_goes_first_whatever_the_order_of_matches():
    """0, 2 and 3 share; 3 has the longest match of them, so that it goes before the two."""
    assert [req.id for req in LPM().order(queue(5), Cache([0, 0, 0, 16, 32], "abaac"))] == [4, 3, 1, 0, 2]


def test_those_who_find_enough_are_never_put_back():
    assert [req.id for req in LPM().order(queue(3), Cache([40, 40, 33], "aaa"))] == [0, 1, 2]


def test_without_a_prefix_cache_it_is_fcfs():
    class Nothing(Cache):
        def shared_prefix(self, a, b):
            return 0

    assert [req.id for req in LPM(window=2).order(queue(5), Nothing([0] * 5, "aaaaa"))] == [0, 1, 2, 3, 4]
    assert LPM.uses == ("prefix_cache",)


def test_the_order_goes_on_as_requests_start():
    """Those beyond the window too are neither repeated nor left out."""
    waiting, cache, started = queue(9), Cache([0, 0, 50, 0, 0, 0, 0, 0, 0], "abacadefg"), []
    for req in LPM(window=5).order(waiting, cache):
        waiting.remove(req)
        started.append(req.id)
    assert started == [2, 0, 1, 3, 4, 5, 6, 7, 8]


def test_those_who_go_by_another_way_are_not_named_again():
    waiting, cache = queue(4), Cache([0, 0, 50, 0], "aaaa")
    order = LPM().order(waiting, cache)
    assert next(order).id == 2
    waiting.remove(waiting.head())  # a modifier starts 0
    assert [req.id for req in order] == [1, 3]


def test_only_those_who_are_pulled_are_compared():
    cache = Cache([0] * 100, "".join(map(chr, range(100, 200))))
    order = LPM().order(queue(100), cache)
    assert [next(order).id for _ in range(3)] == [0, 1, 2]
    assert cache.looks == 0 + 1 + 2


def test_a_cold_request_starves_while_warm_ones_come():
    """SGLang#31954: nothing ages in LPM; a modifier that bounds the wait is the remedy."""
    policy, cache = LPM(), Cache([0] + [64] * 200, "c" + "w" * 200)
    waiting = queue(2, policy)
    for id in range(2, 200):
        first = next(policy.order(waiting, cache))
        assert first.id == id - 1, "the one that came last"
        waiting.remove(first)
        waiting.add(RequestState.of(Request(id, float(id), 100, 1), id, 1, float(id)))
    assert waiting.head().id == 0


def test_it_is_quiet_only_where_there_is_nothing_to_choose():
    for n, slots, quiet in ((0, 1, FOREVER), (1, 1, FOREVER), (2, 1, ONE_STEP), (2, 0, FOREVER)):
        assert LPM().quiet(Cache([], "", queue(n), slots)) == quiet


@pytest.mark.parametrize("name", ["window", "min_match"])
def test_an_option_out_of_range_is_refused_in_one_line(name):
    with pytest.raises(UserError) as error:
        LPM(**{name: 0})
    assert str(error.value).startswith(f"{name}=0: must be at least 1 and at most ")
