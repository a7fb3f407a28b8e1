"""The queue: lanes that stay sorted while they are walked."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from slotlab import Policy, Request, RequestState, Waiting


@dataclass
class Written(Policy):
    """Lane and key as written down, by request id."""

    lanes: dict[int, int] = field(default_factory=dict)
    keys: dict[int, float] = field(default_factory=dict)

    def lane(self, req):
        return self.lanes.get(req.id, 0)

    def key(self, req):
        return self.keys.get(req.id, 0.0)


def states(n: int) -> list[RequestState]:
    return [RequestState.of(Request(i, 0.0, 1, 1), i, 1, 0.0) for i in range(n)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=12),
    operations=st.lists(st.tuples(st.sampled_from("arwo"), st.integers(0, 11), st.integers(0, 4)), max_size=30),
)
def test_lanes_stay_sorted_whatever_is_added_removed_and_refreshed(entries, operations):
    policy = Written(dict(enumerate(lane for lane, _ in entries)), dict(enumerate(float(key) for _, key in entries)))
    waiting, reqs, inside = Waiting(policy), states(len(entries)), set[int]()
    for operation, i, value in operations:
        if i >= len(reqs):
            continue
        if operation == "a" and i not in inside:
            waiting.add(reqs[i])
            inside.add(i)
        elif operation == "r" and i in inside:
            waiting.remove(reqs[i])
            inside.remove(i)
        elif operation == "w" and i in inside:
            policy.keys[i], policy.lanes[i] = float(value), value % 3
            waiting.refresh(reqs[i])
        place = {i: (policy.keys[i], i) for i in inside}
        assert [req.id for req in waiting] == sorted(inside, key=place.__getitem__)
        assert len(waiting) == len(inside)
        assert sorted(waiting.lanes()) == sorted({policy.lanes[i] for i in inside})
        for lane in waiting.lanes():
            here = sorted((i for i in inside if policy.lanes[i] == lane), key=place.__getitem__)
            assert [req.id for req in waiting.walk(lane)] == here
            assert (waiting.head(lane).id, waiting.count(lane)) == (here[0], len(here))
        if inside:
            assert waiting.oldest().id == min(inside)
        assert all((req in waiting) == (req.id in inside) for req in reqs)


def test_a_walk_goes_on_while_those_it_yielded_leave_or_stay():
    for lanes in ({}, {1: 1, 3: 1, 5: 1}, {i: i for i in range(6)}):
        waiting, reqs = Waiting(Written(lanes)), states(6)
        for req in reqs:
            waiting.add(req)
        seen = []
        for req in waiting:
            seen.append(req.id)
            if req.id % 3 != 1:
                waiting.remove(req)
        assert seen == list(range(6))
        assert [req.id for req in waiting] == [1, 4]


def test_the_queue_knows_whether_anything_was_ever_told_apart():
    policy, reqs = Written(keys={2: 5.0}), states(3)
    waiting = Waiting(policy)
    waiting.add(reqs[0]), waiting.add(reqs[1])
    assert waiting.indifferent
    waiting.add(reqs[2])
    waiting.remove(reqs[2])
    assert not waiting.indifferent
