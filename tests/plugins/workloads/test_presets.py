"""The presets compose, and those fitted to public traces are as near to them as their files say."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from scipy import stats

from slotlab import Streams
from slotlab.lab.config import build_part, conf_dir
from slotlab.lab.help import offer_help
from slotlab.lab.plugins import plugins

TRACES = Path(os.environ.get("SLOTLAB_TRACES", Path(__file__).parents[4] / "shared" / "traces"))
OWN = ["chat", "code", "long_context", "two_tenants", "eight_tenants", "batch_and_interactive"]
OWN += ["gamma", "weibull", "constant", "on_off", "ramp", "stages", "diurnal"]


def preset(name):
    plugins()
    offer_help()  # the defaults list names it
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return build_part(compose("config", [f"workload={name}"]).workload, "workload")


def drawn(name, requests=None):
    workload = preset(name)
    workload.requests = requests or workload.requests
    rows = list(workload.draw(Streams(0)))
    names = ("time", "prompt_tokens", "output_tokens", "max_tokens", "tenant", "priority", "deadline")
    return pd.DataFrame({name: [getattr(row, name) for row in rows] for name in names})


@pytest.mark.parametrize("name", OWN)
def test_a_preset_draws_requests_at_unit_rate_under_one_cap(name):
    rows = drawn(name, 20_000)
    spread = 8 * 13.15 if name in ("code", "two_tenants") else 4 * 3
    assert len(rows) / rows["time"].iloc[-1] == pytest.approx(1.0, abs=spread / np.sqrt(20_000))
    assert rows["time"].is_monotonic_increasing
    assert rows["max_tokens"].nunique() == 1 and (rows["output_tokens"] <= rows["max_tokens"]).all()


def test_tenants_have_the_shares_that_their_preset_says():
    share = drawn("eight_tenants", 20_000)["tenant"].value_counts(normalize=True)
    assert len(share) == 8 and share["t1"] / share["t4"] == pytest.approx(4.0, rel=0.1)
    both = drawn("batch_and_interactive", 20_000)
    batch = both[both["tenant"] == "batch"]
    assert len(batch) / len(both) == pytest.approx(0.2, abs=0.02)
    assert ((batch["time"] / 200) % 1 <= 0.1 + 1e-9).all()
    assert set(both[both["tenant"] == "interactive"]["deadline"]) == {1.0}
    assert set(drawn("two_tenants")["tenant"]) == {"chat", "code"}


def azure(name):
    table = pd.read_csv(TRACES / f"azure/AzureLLMInferenceTrace_{name}.csv")
    seconds = pd.to_datetime(table["TIMESTAMP"]).astype("int64") / 1e9
    return np.diff(seconds), table["ContextTokens"], table["GeneratedTokens"]


def mooncake():
    table = pd.read_json(TRACES / "mooncake/conversation_trace.jsonl", lines=True)
    spread = np.sort(table["timestamp"] / 1e3 + 3 * np.random.default_rng(0).random(len(table)))
    return np.diff(spread), table["input_length"], table["output_length"]


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no traces in {TRACES}; set SLOTLAB_TRACES")
@pytest.mark.parametrize(
    ("name", "read"), [("chat", lambda: azure("conv")), ("code", lambda: azure("code")), ("long_context", mooncake)]
)
def test_a_fitted_preset_is_as_near_to_its_trace_as_its_file_says(name, read):
    notes = " ".join(line[2:] for line in Path(conf_dir(), f"workload/{name}.yaml").read_text().splitlines() if line[:1] == "#")
    said = {what: float(re.search(rf"{what}\D*?([0-9]\.[0-9]{{3}})", notes)[1]) for what in ("prompts", "outputs")}
    said["gaps"] = float(re.search(r"(?:gaps|KS) (0\.[0-9]{3})", notes)[1])
    rows = drawn(name, 200_000)
    columns = np.diff(rows["time"], prepend=0.0), rows["prompt_tokens"], rows["output_tokens"]
    for what, column, trace in zip(("gaps", "prompts", "outputs"), columns, read(), strict=True):
        trace = trace / trace.mean() if what == "gaps" else trace
        ks = stats.ks_2samp(trace, column, method="asymp").statistic
        assert ks == pytest.approx(said[what], abs=0.006), what
