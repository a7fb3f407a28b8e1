"""The check of workloads."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np

from slotlab.streams import Streams
from slotlab.testing.faults import Nonconformance
from slotlab.testing.fresh import fresh, require_offer, title
from slotlab.testing.replay import same_under_hash_seeds
from slotlab.workload import Arrival, Workload, digest

MOST = 2_000  # arrivals looked at, of each draw
SEEDS = (Streams(0), Streams(0, 1), Streams(7))


def check_workload(workload: Any) -> None:
    """Fail with a Nonconformance unless `workload`, a class or a preset, keeps the contract.

    What it draws depends on its options and the streams alone, comes in the order of time, and can be served.
    """
    require_offer(workload, Workload)
    for streams in SEEDS:
        where = f"seed {streams.seed}, repeat {streams.repeat}"
        try:
            arrivals = draw(fresh(workload), streams)
            for index, arrival in enumerate(arrivals):
                if wrong := next(faults(index, arrival, arrivals), None):
                    raise Nonconformance(title(workload), "arrivals", f"arrival {index} has {wrong}")
            repeats(workload, streams, arrivals)
        except Nonconformance as fault:
            raise fault.at(where) from None
        except Exception as error:
            raise Nonconformance(title(workload), "no errors", f"{type(error).__name__}: {error}", where) from error
    same_under_hash_seeds({"workload": workload}, "slotlab.testing.workloads:replayed", SEEDS)


def draw(workload: Workload, streams: Streams) -> list[Arrival]:
    """The first arrivals of a draw; some generators of the whole process stand elsewhere each time."""
    random.seed()
    np.random.seed()
    return list(islice(workload.draw(streams), MOST))


def faults(index: int, arrival: Arrival, arrivals: Sequence[Arrival]) -> Iterator[str]:
    """What is wrong with an arrival."""
    before = arrivals[index - 1].time if index else 0.0
    if not (math.isfinite(arrival.time) and arrival.time >= before):
        yield f"time {arrival.time} after {before}: must not go back"
    for name, least in (
        ("prompt_tokens", 0 if arrival.text else 1),
        ("max_tokens", 1),
        ("output_tokens", 1),
        ("prefix_tokens", 0),
    ):
        value = getattr(arrival, name)
        if not (name == "output_tokens" and value is None) and not (type(value) is int and value >= least):
            yield f"{name} {value!r}: must be an int, at least {least}"
    if arrival.output_tokens is not None and arrival.output_tokens > arrival.max_tokens:
        yield f"output_tokens {arrival.output_tokens}: must be at most max_tokens, {arrival.max_tokens}"
    if type(arrival.tenant) is not str or type(arrival.priority) is not int:
        yield f"tenant {arrival.tenant!r} and priority {arrival.priority!r}: must be a str and an int"
    if not 0 < arrival.weight < math.inf:
        yield f"weight {arrival.weight}: must be greater than 0"
    if arrival.prefix_tokens and not arrival.text and arrival.prefix_tokens >= arrival.prompt_tokens:
        yield f"prefix_tokens {arrival.prefix_tokens}: must be fewer than the prompt's {arrival.prompt_tokens}"
    if arrival.follows is not None and not 0 <= arrival.follows < index:
        yield f"follows {arrival.follows}: must be the index of an arrival before it"
    if not 0 <= arrival.think < math.inf:
        yield f"think {arrival.think}: must be at least 0"


def repeats(workload: Any, streams: Streams, arrivals: Sequence[Arrival]) -> None:
    """Fail unless the same streams give the same, from a new object and from one that has drawn before."""
    new = fresh(workload)
    for other, who in ((draw(new, streams), "a new object"), (draw(new, streams), "one that has drawn before")):
        for index, (one, two) in enumerate(zip(arrivals, other, strict=False)):
            if one != two:
                name = next(f.name for f in fields(Arrival) if getattr(one, f.name) != getattr(two, f.name))
                what = f"arrival {index} has {name} {getattr(one, name)!r}, and {getattr(two, name)!r} from {who}"
                raise Nonconformance(title(workload), "determinism", what)
        if len(other) != len(arrivals):
            what = f"{len(arrivals)} arrivals, and {len(other)} from {who}"
            raise Nonconformance(title(workload), "determinism", what)


def replayed(plugins: Mapping[str, Any], streams: Streams) -> object:
    """The digest of a draw, for a replay in another process."""
    return digest([draw(fresh(plugins["workload"]), streams)])
