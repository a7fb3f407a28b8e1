"""How scenarios are drawn."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from hypothesis import strategies as st

from slotlab.testing.companions import ADMISSIONS, BATCHINGS, POLICIES, PREDICTORS, PREEMPTIONS
from slotlab.testing.scenario import Ask, Scenario


def asks(most: int) -> st.SearchStrategy[tuple[Ask, ...]]:
    """Bursts of requests of a few tenants and priorities; some have a deadline, some share a prefix, some are aborted."""
    ask = st.builds(
        Ask,
        time=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 3.0, 8.0]),  # after the one before
        prompt=st.integers(1, 40),
        output=st.integers(1, 20),
        spare=st.sampled_from([0, 0, 4, 20]),
        tenant=st.sampled_from("abc"),
        priority=st.integers(0, 3),
        deadline=st.sampled_from([None, 2.0, 10.0, 40.0]),
        shared=st.sampled_from([0, 0, 8, 24]),
        aborted=st.sampled_from([None, None, None, None, 0.0, 1.5, 9.0]),
    )
    return st.lists(ask, min_size=1, max_size=most).map(in_order)


def in_order(asks: list[Ask]) -> tuple[Ask, ...]:
    """With the gaps between the requests summed up to their times."""
    times = accumulate(ask.time for ask in asks)
    return tuple(replace(ask, time=time) for ask, time in zip(asks, times, strict=True))


def scenarios() -> st.SearchStrategy[Scenario]:
    """Too many requests for too few slots, tokens and blocks, among companions of every kind; or calm ones."""
    return wild() | calm()


def wild() -> st.SearchStrategy[Scenario]:
    """Everything at once."""
    return st.builds(
        lambda shape, **other: Scenario(size=shape[0], blocks=max(1, shape[1] // shape[0]), **other),
        shape=st.tuples(st.sampled_from([1, 2, 4, 16]), st.integers(6, 100)),  # tokens per block, tokens of KV
        asks=asks(10),
        slots=st.integers(1, 5),
        tokens=st.sampled_from([512, 32, 7, 2]),
        prefix_cache=st.booleans(),
        policy=st.sampled_from(list(POLICIES)),
        batching=st.sampled_from(list(BATCHINGS)),
        admission=st.sampled_from(list(ADMISSIONS)),
        preemption=st.sampled_from(list(PREEMPTIONS)),
        predictor=st.sampled_from(list(PREDICTORS)),
    )


def calm() -> st.SearchStrategy[Scenario]:
    """Some decode for long while a prompt that is too long stands before short ones: what is next may change in a jump."""
    ask = st.builds(
        Ask,
        time=st.sampled_from([0.0, 0.0, 0.0, 0.0, 2.0]),
        prompt=st.sampled_from([1, 2, 3, 6, 30, 38, 45]),
        output=st.sampled_from([1, 2, 30, 35, 40, 24]),
        tenant=st.sampled_from("ab"),
        priority=st.integers(0, 2),
        deadline=st.sampled_from([None, 5.0, 20.0, 40.0]),
    )
    return st.builds(
        Scenario,
        asks=st.lists(ask, min_size=3, max_size=7).map(in_order),
        slots=st.sampled_from([8, 3]),
        tokens=st.just(512),
        blocks=st.sampled_from([48, 64, 80]),
        size=st.just(1),
        policy=st.sampled_from(list(POLICIES)),
        batching=st.sampled_from(["continuous", "continuous", "whole batches"]),
        preemption=st.sampled_from(["newest", "by rank"]),
        predictor=st.sampled_from(list(PREDICTORS)),
    )


def streams(most_bypass: int) -> st.SearchStrategy[Scenario]:
    """A few kinds of request that keep coming, faster than they can be served, for long enough to overtake somebody."""
    count = 2 * most_bypass + 20
    gap = st.sampled_from([0.5, 2.0, 8.0, 30.0])
    return st.builds(
        lambda some, gap, slots, policy: Scenario(
            asks=tuple(replace(some[i % len(some)], time=gap * i, aborted=None) for i in range(count)),
            slots=slots,
            tokens=512,
            blocks=512,
            size=4,
            policy=policy,
        ),
        some=asks(4).map(lambda some: (*some, *some[-1:] * 3)),  # the last kind comes most often
        gap=gap,
        slots=st.integers(1, 2),
        policy=st.sampled_from(["shortest", "displacing", "fcfs"]),
    )
