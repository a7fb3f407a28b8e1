"""What each request's time went into."""

import numpy as np
import pytest

from slotlab.record.decomposition import PARTS, decompose
from slotlab.record.latency import request_latencies


def test_every_part_by_hand(requests_of, steps_of):
    """The second request's prefill of 9 tokens rides on the first one's decode: nine tenths of that step are its doing."""
    steps = steps_of(
        {"duration": 2.0, "prefill_tokens": 5, "decode_tokens": 0},
        {"duration": 10.0, "prefill_tokens": 9, "decode_tokens": 1},
        {"duration": 1.0, "decode_tokens": 2},
    )
    requests = requests_of(
        {"arrival": 0, "started": 0.0, "times": [2, 12, 13]}, {"arrival": 1.5, "started": 2.0, "times": [12, 13]}, {}
    )
    parts = decompose(requests, steps)
    assert parts.loc[0].to_dict() == pytest.approx({"queued": 0, "prefill": 2, "decode": 2, "stalled": 9, "preempted": 0})
    assert parts.loc[1].to_dict() == pytest.approx({"queued": 0.5, "prefill": 10, "decode": 1, "stalled": 0, "preempted": 0})
    assert parts.loc[2].isna().all(), "a rejected request has no parts"


def test_time_between_steps_is_decode(requests_of, steps_of):
    steps = steps_of({"duration": 1.0, "prefill_tokens": 1}, {"duration": 1.0, "decode_tokens": 1})
    steps["start"] = [0.0, 5.0]
    parts = decompose(requests_of({"started": 0.0, "times": [1, 6]}), steps)
    assert parts.loc[0].to_dict() == pytest.approx({"queued": 0, "prefill": 1, "decode": 5, "stalled": 0, "preempted": 0})


@pytest.mark.parametrize(
    "options", [[], ["engine.num_blocks=24", "policy=priority", "workload.tenants=[{name:a},{name:b,priority:1}]"]]
)
def test_the_parts_add_up_to_the_whole_latency(slotlab, options):
    from slotlab.record.schema import read_table

    folder = slotlab("engine=simulated", "load.rates=[200]", "load.repeats=2", *options).folder
    requests, steps, slots = (read_table(folder / f"{name}.parquet") for name in ("requests", "steps", "slots"))
    finished = (requests["status"] == "finished").to_numpy()
    parts, e2e = decompose(requests, steps, slots), request_latencies(requests)["e2e"]
    assert bool(options) == bool(requests["preemptions"].any())
    assert parts.sum(axis=1)[finished].to_numpy() == pytest.approx(e2e[finished], rel=1e-12)
    assert (parts[finished] > -1e-9).all(axis=None) and np.isnan(parts[~finished].to_numpy()).all()
    assert (parts["preempted"][finished] > 0).equals(requests["preemptions"][finished] > 0)
    unknown = decompose(requests, steps).isna().all(axis=1)
    assert unknown.equals(~finished | (requests["preemptions"] > 0)), "without slots nobody knows when they were out"
    assert list(parts) == list(PARTS)
