"""The check of workloads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np

from slotlab.arrivals import faults
from slotlab.errors import told
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
            for index in range(len(arrivals)):
                if wrong := next(faults(index, arrivals), None):
                    raise Nonconformance(title(workload), "arrivals", f"arrival {index} has {wrong}")
            repeats(workload, streams, arrivals)
        except Nonconformance as fault:
            raise fault.at(where) from None
        except Exception as error:
            raise Nonconformance(title(workload), "no errors", told(error), where) from error
    same_under_hash_seeds({"workload": workload}, "slotlab.testing.workloads:replayed", SEEDS)


def draw(workload: Workload, streams: Streams) -> list[Arrival]:
    """The first arrivals of a draw; some generators of the whole process stand elsewhere each time."""
    random.seed()
    np.random.seed()
    return list(islice(workload.draw(streams), MOST))


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
