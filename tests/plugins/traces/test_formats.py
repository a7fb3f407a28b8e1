"""Each format, on small files with its ugly rows."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slotlab import Tenant, UserError
from slotlab_plugins.workloads.traces import CHOICES
from slotlab_plugins.workloads.traces.azure import Azure
from slotlab_plugins.workloads.traces.bailian import Bailian
from slotlab_plugins.workloads.traces.burstgpt import BurstGPT
from slotlab_plugins.workloads.traces.lengths import Lengths, Vidur
from slotlab_plugins.workloads.traces.mooncake import Mooncake
from slotlab_plugins.workloads.traces.prefixes import Prefixes

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


def mooncake(time: float, ids: list[int], prompt: int | None = None, output: int = 5) -> str:
    tokens = 512 * len(ids) if prompt is None else prompt
    return json.dumps({"timestamp": time, "input_length": tokens, "output_length": output, "hash_ids": ids})


def bailian(chat: int, parent: int, time: float, prompt: int, output: int = 5, ids: list[int] | None = None) -> str:
    row = {"chat_id": chat, "parent_chat_id": parent, "timestamp": time, "input_length": prompt, "output_length": output}
    return json.dumps({**row, "type": "text", "turn": 1, "hash_ids": ids or []})


def test_azure_2023_keeps_all_seven_decimals(write, draw):
    path = write(AZURE, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:46.6805901,10,5", "2023-11-16 18:16:00,9,1")
    arrivals = draw(Azure(path))
    assert [arrival.time for arrival in arrivals] == pytest.approx([0, 1e-7, 13.31941], abs=1e-9)
    assert [(arrival.prompt_tokens, arrival.output_tokens) for arrival in arrivals] == [(374, 44), (10, 5), (9, 1)]


def test_azure_2024_has_a_zone_and_perhaps_no_decimals(write, draw):
    stamps = ("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01+00:00", "2024-05-10 02:00:02.5+02:00")
    arrivals = draw(Azure(write(AZURE, *(f"{stamp},100,10" for stamp in stamps))))
    assert [arrival.time for arrival in arrivals] == pytest.approx([0, 0.99007, 2.49007])


def test_rows_a_microsecond_apart_stay_in_order_and_apart_and_ties_in_the_order_of_the_file(write, draw):
    rows = ["2023-11-16 00:00:00.0000001,1,1", "2023-11-16 00:00:00.0000011,2,1", "2023-11-16 00:00:00.0000011,3,1"]
    arrivals = draw(Azure(write(AZURE, *rows)))
    assert [arrival.prompt_tokens for arrival in arrivals] == [1, 2, 3]
    assert arrivals[0].time < arrivals[1].time == arrivals[2].time


def test_columns_are_read_by_name_in_any_order(write, draw):
    path = write("\ufeffGeneratedTokens,Region, TIMESTAMP ,ContextTokens", "7,eu,2023-11-16 00:00:00.5,300")
    assert [(arrival.prompt_tokens, arrival.output_tokens) for arrival in draw(Azure(path))] == [(300, 7)]


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            [
                "5,ChatGPT,472,18,490,Conversation log",
                "5,GPT-4,30,0,30,API log",
                "45,ChatGPT,0,0,0,API log",
                "118,GPT-4,12,8,20,API",
            ],
        ),
        (
            "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
            [
                "5.0,1,2,ChatGPT,472,18,490,Chat",
                "5.0,,,GPT-4,30,0,30,API",
                "45.0,,,ChatGPT,0,0,0,API",
                "118.0,,,GPT-4,12,8,20,API",
            ],
        ),
    ],
)
def test_burstgpt_with_either_header_drops_what_failed(write, draw, header, rows):
    workload = BurstGPT(write(header, *rows))
    assert [(a.time, a.prompt_tokens, a.output_tokens) for a in draw(workload)] == [(0, 472, 18), (113, 12, 8)]
    assert workload.facts()["rows"] == "read 4 = 2 emitted + 2 failed"


def test_mooncake_hash_ids_become_shared_prefixes_along_the_most_used_branch(write, draw):
    chains = [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 7], [9]]
    arrivals = draw(Mooncake(write(*(mooncake(1000 * i, ids) for i, ids in enumerate(chains)))))
    assert [(a.prefix_group, a.prefix_tokens) for a in arrivals] == [(3, 1535), (3, 2047), (3, 2048), (3, 512), (None, 0)]


def test_the_last_token_of_a_prompt_is_never_shared_for_it_is_to_be_computed(write, draw):
    whole, single = [mooncake(0, [0, 1], 600)] * 2, [mooncake(0, [7], 1)] * 2
    arrivals = draw(Mooncake(write(*whole, *single, mooncake(0, [], 0))))
    assert [(a.prefix_group, a.prefix_tokens) for a in arrivals] == [(1, 599), (1, 599), (None, 0), (None, 0)]


@pytest.mark.parametrize("engine", [["engine=paged", "model=tiny"], ["engine=simulated"]])
def test_prompts_that_are_alike_to_the_end_are_served_and_share_all_full_blocks(slotlab, write, engine):
    path = write(*[mooncake(0, [0, 1], 600, 3)] * 2)
    said = slotlab(*engine, "workload=mooncake", f"workload.path={path}", "engine.prefix_cache=true", "batching.max_num_seqs=1")
    assert said.code == 0, said.err
    assert list(pd.read_parquet(said.folder / "requests.parquet")["cached_tokens"]) == [0, 592]


@pytest.mark.parametrize(
    ("chains", "row", "reason"),
    [
        ([[1, 2, 1]], 1, "hash_ids: 1 comes after 2 here, and first before that"),
        ([[1, 2], [1, 2], [2, 1]], 3, "hash_ids: 2 comes first here, and after 1 before that"),
        ([[1, 2], [3, 2]], 2, "hash_ids: 2 comes after 3 here, and after 1 before that"),
        ([[5, 5]], 1, "hash_ids: 5 comes after 5 here, and first before that"),
    ],
)
def test_hashes_of_mooncake_that_cannot_be_of_all_tokens_up_to_their_end_are_refused(write, draw, chains, row, reason):
    """A cycle of them kept the reader busy for ever."""
    path = write(*(mooncake(0, ids) for ids in chains for _ in range(2)))
    with pytest.raises(UserError) as error:
        draw(Mooncake(path))
    assert str(error.value) == f"{path}: row {2 * row - 1}: {reason}"


def test_blocks_of_bailian_may_repeat_for_their_hashes_are_of_their_own_tokens_alone(write, draw):
    chains = [[1, 2, 1], [1, 2, 1], [2, 1], [2, 1], [3, 2, 1]]
    arrivals = draw(Bailian(write(*(bailian(i, -1, i, 100, ids=ids) for i, ids in enumerate(chains)))))
    assert [(a.prefix_group, a.prefix_tokens) for a in arrivals] == [(2, 48), (2, 48), (4, 32), (4, 32), (None, 0)]


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(-3, 3), max_size=6), max_size=6))
def test_prefixes_share_exactly_what_the_blocks_of_two_prompts_have_in_common(chains):
    prefixes = Prefixes.of(chains, 4)
    for chain in chains:
        group, shared = prefixes.share(chain, 4 * len(chain) + 1)
        others = [other for other in chains if other is not chain]
        alike = [k for k in range(len(chain) + 1) if any(chain[:k] == other[:k] for other in others)]
        assert shared == 4 * max(alike, default=0)
        for other in others:
            if shared and prefixes.share(other, 4 * len(other) + 1)[0] == group:
                assert chain[0] == other[0]


def test_mooncake_keeps_its_grid_or_spreads_it_and_says_which(write, draw):
    path = write(*(mooncake(3000 * (i // 20), [i]) for i in range(100)))
    kept, spread = Mooncake(path), Mooncake(path, spread=3.0)
    assert [arrival.time for arrival in draw(kept)] == [3.0 * (i // 20) for i in range(100)]
    times = [arrival.time for arrival in draw(spread)]
    assert times == sorted(times) and len(set(times)) == 100 and all(0 <= t - 3 * (i // 20) < 3 for i, t in enumerate(times))
    assert kept.facts()["times"] == "the file's stamps, ties kept"
    assert spread.facts()["times"] == "spread over 3 s after each stamp"
    with pytest.raises(UserError, match=r"spread=4\.0: must be at most the gap between two stamps"):
        draw(Mooncake(path, spread=4.0))


def test_a_turn_of_bailian_waits_for_the_answer_before_it_and_thinks_as_long_as_in_the_trace(write, draw):
    rows = [
        bailian(1, -1, 10.0, 32, ids=[1, 2]),
        bailian(2, -1, 11.0, 32, ids=[1, 3]),
        bailian(3, 1, 20.0, 40, ids=[1, 2, 4]),  # has room for 32 + 5
        bailian(4, 3, 25.0, 42),  # has no room for 40 + 5: the client forgot something
        bailian(5, 99, 26.0, 50),  # follows a chat from before the trace
        bailian(6, 5, 27.0, 55),  # says nothing after 50 + 5
    ]
    workload = Bailian(write(*rows), answer=0.2)
    arrivals = draw(workload)
    assert [arrival.follows for arrival in arrivals] == [None, None, 0, None, None, None]
    assert arrivals[2].think == pytest.approx(10 - 5 * 0.2)
    assert [arrival.prefix_tokens for arrival in arrivals] == [31, 16, 0, 0, 0, 0]
    assert workload.facts()["turns"] == "2 first, 1 wait for an answer, 3 cut off"


def test_a_session_of_bailian_is_served_turn_by_turn(slotlab, write):
    path = write(bailian(7, -1, 100.0, 32, 100), bailian(8, 7, 100.1, 200), bailian(9, -1, 100.2, 10, 300))
    said = slotlab("engine=simulated", "workload=bailian", f"workload.path={path}")
    assert said.code == 0, said.err
    requests = pd.read_parquet(said.folder / "requests.parquet").set_index("id")
    first, second = requests.loc[0], requests.loc[1]
    assert first["finish"] > 0.2 and second["scheduled_arrival"] == pytest.approx(first["finish"] + 0.1)
    assert list(requests.index) == [0, 2, 1] and requests.loc[2, "scheduled_arrival"] == pytest.approx(0.2)


def test_files_of_lengths_get_unit_rate_arrivals_whose_gaps_do_not_feel_dropped_rows(write, draw):
    path = write("num_prefill_tokens,num_decode_tokens,pd_ratio", *(f"{1 + i % 2 * 999},{i + 1},0.5" for i in range(400)))
    everybody, half = draw(Lengths(path)), draw(Lengths(path, max_prompt=500))
    assert [arrival.output_tokens for arrival in everybody] == list(range(1, 401))
    assert [arrival.time for arrival in half] == [arrival.time for arrival in everybody[:200]]
    assert everybody[-1].time == pytest.approx(400, rel=0.2) and not Lengths.own_times


def test_lengths_with_arrival_times_keep_them(write, draw):
    path = write("arrived_at,num_prefill_tokens,num_decode_tokens", "3.5,100,10", "4.25,200,20")
    assert [(arrival.time, arrival.prompt_tokens) for arrival in draw(Vidur(path))] == [(0, 100), (0.75, 200)]


def test_there_is_a_docstring_for_every_choice():
    assert all(choice.__doc__ and not choice.__doc__.startswith(f"{choice.__name__}(") for choice in CHOICES.values())


def test_tenants_are_synthesised_by_share_and_said_to_be(write, draw):
    path = write(AZURE, *("2023-11-16 00:00:00,10,5" for _ in range(400)))
    workload = Azure(path, tenants=[Tenant("heavy", 3.0, priority=1), Tenant("light", 1.0, weight=2.0)])
    arrivals = draw(workload)
    heavy = [arrival for arrival in arrivals if arrival.tenant == "heavy"]
    assert 270 < len(heavy) < 330 and {arrival.priority for arrival in heavy} == {1}
    assert {arrival.weight for arrival in arrivals if arrival.tenant == "light"} == {2.0}
    assert workload.facts()["tenants"] == "synthesised by share"
    assert {arrival.tenant for arrival in draw(Azure(path))} == {"default"}
    assert [(a.time, a.prompt_tokens) for a in draw(Azure(path))] == [(a.time, a.prompt_tokens) for a in arrivals]
