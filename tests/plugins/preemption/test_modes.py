"""Whom the built-in preemptions evict, and how, in whole schedules. Steps of one time unit, blocks of one token."""

from __future__ import annotations

import random

import pytest
from omegaconf import OmegaConf

from slotlab import Arrival, Mode
from slotlab_plugins.admission.chunk import Chunk
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.preemption.victims import LeastComputed, LowestRank, MostBlocks, Newest

KINDS = [Newest, LowestRank, LeastComputed, MostBlocks]

# arrival, prompt, priority; three output tokens each
WORK = [(0, 1, 0), (0, 5, 0), (0, 3, 1), (1, 3, 0)]

# 16 blocks: A1 B5 C3 | A1 B1 C1 D3, which makes 2 + 6 + 4 + 3 = 15; at 2 A takes the last one, and B lacks one
TABLES = [
    # D started last. The others end at 3; then D computes 3 again and its second token | and its third
    (Newest, [3, 3, 3, 5], [0, 0, 0, 3]),
    # C is the least urgent. At 3 it computes 4 again and its third token, beside D's third
    (LowestRank, [3, 3, 4, 4], [0, 0, 4, 0]),
    # A has computed 2, which D's 3 undercut only before it started
    (LeastComputed, [4, 3, 3, 4], [2, 0, 0, 0]),
    # B holds 6, and is its own victim
    (MostBlocks, [3, 4, 3, 4], [0, 6, 0, 0]),
]


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(("kind", "finish", "lost"), TABLES)
def test_a_schedule_worked_out_by_hand(run, kind, finish, lost, mode, jump):
    arrivals = [Arrival(float(time), prompt, 3, 3, priority=priority) for time, prompt, priority in WORK]
    recorder = run(arrivals, Priority(), slots=4, blocks=16, preemption=kind(mode), jump=jump)
    assert [recorder.times[id][-1] for id in range(4)] == finish  # a step costs 1, whatever it computes
    assert [req.preemptions for req in recorder.states] == [int(tokens > 0) for tokens in lost]
    assert [req.recomputed for req in recorder.states] == (lost if mode is Mode.RECOMPUTE else [0] * 4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mode_is_an_option_by_name(kind):
    config = OmegaConf.structured(kind)
    assert OmegaConf.to_yaml(config) == "mode: RECOMPUTE\n"
    config.merge_with_dotlist(["mode=SWAP"])
    assert OmegaConf.to_yaml(config) == "mode: SWAP\n"
    assert OmegaConf.to_object(config) == kind(Mode.SWAP)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", range(3))
def test_jumps_change_nothing_and_all_come_to_an_end(run, kind, mode, seed):
    rng = random.Random(seed)
    rows = [(rng.uniform(0, 30), rng.randint(1, 9), rng.randint(1, 20), rng.randint(0, 2)) for _ in range(20)]
    arrivals = [Arrival(time, prompt, output, output, priority=priority) for time, prompt, output, priority in sorted(rows)]
    for policy in (FCFS, lambda: Priority(displace=True)):
        one, other = (run(arrivals, policy(), slots=5, blocks=32, preemption=kind(mode), jump=jump) for jump in (False, True))
        assert one.times == other.times
        assert sum(req.preemptions for req in one.states) > 0


def test_two_long_requests_do_not_evict_each_other_for_ever(run):
    """Chunks of three and too few blocks for both: whoever was furthest along always gave way, and nobody came to an end."""
    arrivals = [Arrival(0.0, prompt, 1, 1) for prompt in (1, 22, 17)]
    options = {"batching": Continuous(2, 3), "admission": Chunk(), "preemption": MostBlocks()}
    recorder = run(arrivals, FCFS(), blocks=22, **options)
    assert all(len(recorder.times[id]) == 1 for id in range(3))
