"""The public traces themselves, where they are: as many requests as their publishers say, and the figures known of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from slotlab_plugins.workloads.traces.azure import Azure
from slotlab_plugins.workloads.traces.lengths import Lengths
from slotlab_plugins.workloads.traces.mooncake import Mooncake
from slotlab_plugins.workloads.traces.servegen import ServeGen


@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output", "rate", "cv"),
    [("conv", 19_366, 1020, 129, 5.53, 1.09), ("code", 8_819, 1469, 13, 2.57, 13.15)],
)
def test_azure_2023(public, draw, name, rows, prompt, output, rate, cv):
    workload = Azure(public(f"azure/AzureLLMInferenceTrace_{name}.csv"))
    arrivals = draw(workload)
    assert workload.facts()["rows"] == f"read {rows} = {rows} emitted"
    assert np.median([arrival.prompt_tokens for arrival in arrivals]) == prompt
    assert np.median([arrival.output_tokens for arrival in arrivals]) == output
    gaps = np.diff([arrival.time for arrival in arrivals])
    assert 1 / gaps.mean() == pytest.approx(rate, rel=0.01) and gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.01)


def test_mooncake_conversation_keeps_almost_all_of_its_sharing(public, draw):
    arrivals = draw(Mooncake(public("mooncake/conversation_trace.jsonl")))
    assert len(arrivals) == 12_031 and max(arrival.prompt_tokens for arrival in arrivals) == 126_195
    assert sum(a.time == b.time for a, b in pairwise(arrivals)) == 10_851
    longest: dict[int | None, int] = {None: 0}
    shared = 0
    for arrival in arrivals:
        before = longest.get(arrival.prefix_group, 0)
        shared += min(before, arrival.prefix_tokens)
        longest[arrival.prefix_group] = max(before, arrival.prefix_tokens)
    longest[None] = 0
    assert shared / sum(arrival.prompt_tokens for arrival in arrivals) == pytest.approx(0.36, abs=0.01)


def test_sharegpt_lengths(public, draw):
    arrivals = draw(Lengths(public("etalon/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")))
    assert len(arrivals) == 30_731
    assert np.median([arrival.prompt_tokens for arrival in arrivals]) == 1730
    assert np.median([arrival.output_tokens for arrival in arrivals]) == 415


def test_servegen_comes_at_the_measured_rate_in_bursts(public, draw):
    path = public("servegen/language_m-small/chunk-14-trace.csv")
    workload = ServeGen(path, start=0, end=3600)
    arrivals = draw(workload)
    expected = 600 * sum(window.rate for window in list(workload.windows())[:6])
    assert len(arrivals) == pytest.approx(expected, rel=0.05)
    gaps = np.diff([arrival.time for arrival in arrivals])
    assert gaps.std() / gaps.mean() > 2
    ranks = np.corrcoef([a.prompt_tokens for a in arrivals], [a.output_tokens for a in arrivals])[0, 1]
    assert abs(ranks) < 0.02, "prompt and output are to be independent"


def test_an_idle_client_of_servegen_sends_nothing_until_it_wakes(public, draw):
    arrivals = draw(ServeGen(public("servegen/language_m-small/chunk-13-trace.csv"), requests=5))
    assert all(arrival.time >= 21_600 for arrival in arrivals)


def test_the_whole_hour_of_azure_conv_is_replayed_at_its_own_times(slotlab, public):
    said = slotlab("engine=simulated", "workload=azure", f"workload.path={public('azure/AzureLLMInferenceTrace_conv.csv')}")
    assert said.code == 0, said.err
    assert "rows read 19366 = 19366 emitted" in said.out and "wall time " in said.out and "peak memory " in said.out
    requests = pd.read_parquet(said.folder / "requests.parquet", columns=["scheduled_arrival", "status", "output_tokens"])
    assert set(requests["status"]) == {"finished"} and requests["output_tokens"].sum() == 4_088_665
    assert requests["scheduled_arrival"].iloc[-1] == pytest.approx(3501.72, abs=0.01)


def test_a_preset_finds_its_file_in_the_folder_of_the_environment(slotlab, public, monkeypatch):
    monkeypatch.setenv("SLOTLAB_TRACES", str(Path(public("azure/AzureLLMInferenceTrace_code.csv")).parents[1]))
    for preset in ("azure_code", "azure_conv", "mooncake_conversation"):
        said = slotlab("engine=simulated", f"workload={preset}", "workload.requests=5", "engine.num_blocks=9000")
        assert said.code == 0 and "read 5 = 5 emitted" in said.out, said.err
