"""Every reader keeps the contract of workloads, by the kit, and is served by both engines."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from slotlab.arrivals import check_arrivals
from slotlab.testing import check_workload
from slotlab_plugins.workloads.traces import CHOICES

AZURE = ["TIMESTAMP,ContextTokens,GeneratedTokens", *(f"2023-11-16 18:15:4{i}.5,{20 + i},{3 + i}" for i in range(8))]
BURSTGPT = ["Timestamp,Request tokens,Response tokens", *(f"{i},{20 + i},{i % 4}" for i in range(8))]
LENGTHS = ["num_prefill_tokens,num_decode_tokens", *(f"{20 + i},{3 + i}" for i in range(8))]
VIDUR = ["arrived_at,num_prefill_tokens,num_decode_tokens", *(f"{i / 4},{20 + i},{3 + i}" for i in range(8))]
CHAINS = [[0], [0, 1], [0, 1], [0, -2], [10**25], [10**25], [7], [7]]
LEAST = {"timestamp": 0, "output_length": 3}
MOONCAKE = [json.dumps({**LEAST, "input_length": 512 * len(ids) - 200, "hash_ids": ids}) for ids in CHAINS]
BAILIAN = [
    json.dumps(
        {**LEAST, "chat_id": i, "parent_chat_id": i - 1 if i % 2 else -1, "input_length": 32 + 3 * (i % 2), "hash_ids": ids}
    )
    for i, ids in enumerate(CHAINS)
]
SERVEGEN = ["0,0.01,1,Gamma,1,1", "600,0,,,,", "1200,0.01,1,Weibull,0.5,1"]
DATASET = json.dumps({"0": {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{3: 1.0}"}})
FILES = {
    "azure": AZURE, "bailian": BAILIAN, "burstgpt": BURSTGPT, "lengths": LENGTHS, "mooncake": MOONCAKE, "servegen": SERVEGEN,
    "vidur": VIDUR,
}  # fmt: skip
PUBLIC = {  # with a head of each that is small enough for a real model
    "azure": ("azure/AzureLLMInferenceTrace_conv.csv", ["max_prompt=400"]),
    "lengths": ("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv", ["max_prompt=400"]),
    "mooncake": ("mooncake/conversation_trace.jsonl", ["max_prompt=1000"]),
    "servegen": ("servegen/language_m-small/chunk-14-trace.csv", ["max_prompt=400"]),
}


@pytest.fixture
def reader(write):
    def make(name: str):
        write(DATASET, name="t-dataset.json")
        return CHOICES[name](write(*FILES[name], name="t-trace.csv"))

    return make


def test_there_is_a_file_of_every_format():
    assert FILES.keys() | {"rerun"} == CHOICES.keys()


@pytest.mark.parametrize("name", FILES)
def test_every_reader_conforms(reader, name):
    check_workload(reader(name))


@pytest.mark.parametrize("name", PUBLIC)
def test_all_of_a_public_trace_can_be_served(public, draw, name):
    workload = CHOICES[name](public(PUBLIC[name][0]), **({"end": 3600} if name == "servegen" else {}))
    check_arrivals(workload, draw(workload))


@pytest.mark.parametrize("engine", ["simulated", "paged"])
@pytest.mark.parametrize("name", PUBLIC)
def test_the_head_of_a_public_trace_is_served_by_both_engines(slotlab, public, name, engine):
    path, options = PUBLIC[name]
    words = [f"workload={name}", f"workload.path={public(path)}", *(f"workload.{option}" for option in options)]
    said = slotlab(
        f"engine={engine}", *words, "workload.requests=3", "workload.max_tokens=2", "engine.prefix_cache=true",
        "load=concurrencies", "load.concurrencies=[2]",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert list(pd.read_parquet(said.folder / "requests.parquet")["status"]) == ["finished"] * 3
