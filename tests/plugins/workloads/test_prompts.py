"""The token ids of prompts: shared prefixes, what was said in earlier turns; and the real engine that is given them."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotlab import Arrival, Point, Streams
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.paged import Paged
from slotlab_plugins.models.llama import Tiny
from slotlab_plugins.prompts import Conversations, Texts


def conversations(*arrivals):
    return Conversations(arrivals, Streams(0), 1000, {"hello": [5, 6]})


def test_everybody_in_a_prefix_group_begins_alike():
    ids = conversations(
        Arrival(0.0, 30, 8, 8, prefix_group=1, prefix_tokens=20),
        Arrival(1.0, 40, 8, 8, prefix_group=1, prefix_tokens=25),
        Arrival(2.0, 30, 8, 8, prefix_group=2, prefix_tokens=20),
        Arrival(3.0, 30, 8, 8),
    )
    assert [len(ids[i]) for i in range(4)] == [30, 40, 30, 30]
    assert ids[0][:20] == ids[1][:20] and ids[0][20:25] != ids[1][20:25]
    assert ids[2][:20] != ids[0][:20]


@given(st.integers(), st.integers(0, 5), st.integers(0, 3))
def test_no_number_of_a_prefix_group_is_taken_for_that_of_a_request(group, other, block):
    """Groups of a trace were hashes, and -1 - group the name of their blocks: -3 was request 2."""
    shared = [Arrival(0.0, 80, 8, 8, prefix_group=group, prefix_tokens=79)]
    texts = Texts([*shared, *(Arrival(0.0, 80, 8, 8) for _ in range(5))], 16)
    assert (texts.content(0, block) == texts.content(other, block)) == (other == 0)


def test_a_turn_begins_with_all_that_was_said_before():
    ids = conversations(Arrival(0.0, 5, 8, 3), Arrival(0.0, 12, 8, 2, follows=0), Arrival(0.0, 12, 8, 2, follows=1))
    ids[0] += [1, 2, 3]
    assert ids[1][:8] == ids[0] and len(ids[1]) == 12
    ids[1] += [7]
    with pytest.raises(AssertionError, match="request 2: a prompt of 12 tokens cannot begin with 13"):
        ids[2]


def test_an_answer_that_was_cut_short_leaves_the_next_prompt_as_long_as_announced():
    ids = conversations(Arrival(0.0, 5, 8, 3), Arrival(0.0, 12, 8, 2, follows=0))
    assert ids[1][:5] == ids[0] and len(ids[1]) == 12


def test_sessions_and_prefixes_run_on_the_real_engine(slotlab):
    words = (
        "workload.requests=12",
        "workload.sessions={turns:3,think:0.01}",
        "workload.prefixes={groups:2,tokens:{law:fixed,mean:20}}",
    )
    said = slotlab(*words, "workload.prompt.mean=8", "workload.output.mean=4", "load.rates=[200]")
    assert said.code == 0, said.err
    requests = pd.read_parquet(said.folder / "requests.parquet")
    assert len(requests) == 12 and set(requests["status"]) == {"finished"}


def answers(engine, arrivals, slots, blocks):
    """What the model says to each request."""
    engine.begin(arrivals, Streams(0))
    recorder = Recorder()
    scheduler = Scheduler(BlockPool(blocks, engine.block_size), batching=Continuous(slots, 64))
    serve(source(arrivals, Point(concurrency=3)), scheduler, engine, engine.clock(), recorder)
    return {req.id: engine.output(req) for req in recorder.states}, sum(req.preemptions for req in recorder.states)


def test_a_session_says_the_same_in_any_company():
    """Batched, preempted or alone: each turn goes on from the same words."""
    arrivals = [Arrival(0.0, 20, 12, 12, prefix_group=0, prefix_tokens=16) for _ in range(3)]
    arrivals += [Arrival(0.0, 40, 9, 9, follows=i) for i in range(3)]
    engine = Paged(device="cpu", block_size=4, num_blocks=64)
    engine.open(Tiny())
    alone, _ = answers(engine, arrivals, slots=1, blocks=64)
    together, preemptions = answers(engine, arrivals, slots=3, blocks=20)
    assert preemptions and together == alone
    other, _ = answers(engine, [replace(arrival, prefix_group=1) for arrival in arrivals], slots=1, blocks=64)
    assert other[3] != alone[3], "the prefix is still there in the second turn"
