"""ServeGen's windows against the theory of what is drawn from them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slotlab import UserError
from slotlab_plugins.workloads.traces.servegen import ServeGen

DATASET = json.dumps({"0": {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{3: 1.0}"}})
LATER = json.dumps({
    "0": {"input_tokens": "{}", "output_tokens": "{}"},
    "1200": {"input_tokens": "{7: 1.0}", "output_tokens": "{9: 1.0}"},
})  # fmt: skip


@pytest.fixture
def client(write):
    def make(*windows: str, dataset: str = DATASET, **options) -> ServeGen:
        write(dataset, name="chunk-0-dataset.json")
        return ServeGen(write(*windows, name="chunk-0-trace.csv"), **options)

    return make


def test_counts_are_random_with_the_variance_of_the_process_and_the_mean_of_the_rate(client, draw):
    workload = client("0,0.5,2,Gamma,0.25,8", "600,0.5,2,Gamma,0.25,8")
    counts = [len(draw(workload, seed=seed)) for seed in range(200)]
    assert np.mean(counts) == pytest.approx(600 + (4 - 1) / 2, abs=12)
    assert np.var(counts) / np.mean(counts) == pytest.approx(4, rel=0.35)  # cv^2, as of any renewal process


@pytest.mark.parametrize(("law", "cv"), [("Gamma", 2.0), ("Weibull", 2.236)])
def test_gaps_have_the_fitted_shape_at_the_measured_rate_whatever_the_scale(client, draw, law, cv):
    shape = 0.25 if law == "Gamma" else 0.5
    gaps = np.diff([arrival.time for arrival in draw(client(f"0,50,9,{law},{shape},123"))])
    assert 1 / gaps.mean() == pytest.approx(50, rel=0.05) and gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_idle_windows_may_be_empty_cells_and_no_gap_starts_anew_behind_them(client, draw):
    windows = ("0,10,0.1,Gamma,100,0.001", "600,0,,,,", "1200,10,0.1,Gamma,100,0.001")
    times = [arrival.time for arrival in draw(client(*windows))]
    assert not [time for time in times if 600 <= time < 1200]
    counts = np.histogram(times, [0, 600, 1200, 1800])[0]
    assert list(counts) == pytest.approx([6000, 0, 6000], abs=25)


def test_lengths_follow_their_own_windows(client, draw):
    arrivals = draw(client("0,0,0,,0,0", "1200,5,1,Gamma,1,0.2", dataset=LATER))
    assert {(arrival.prompt_tokens, arrival.output_tokens) for arrival in arrivals} == {(7, 9)}
    prompts = [arrival.prompt_tokens for arrival in draw(client("0,5,1,Gamma,1,0.2"))]
    assert prompts.count(20) / len(prompts) == pytest.approx(0.75, abs=0.03)


@pytest.mark.parametrize(
    ("windows", "dataset", "message"),
    [
        (["0,5,1,Gamma"], DATASET, "row 1: has 4 values: must be start, rate, cv, pattern, shape, scale"),
        (["start,rate,cv,pattern,shape,scale"], DATASET, "row 1: start=start: must be a number"),
        (["0,5,1,Pareto,1,1"], DATASET, "row 1: pattern=Pareto: must be Gamma or Weibull where the rate is not 0"),
        (["0,5,1,Gamma,0,1"], DATASET, "row 1: shape=0: must be from 0.01 to 1e+06"),
        (["600,5,1,Gamma,1,1", "0,5,1,Gamma,1,1"], DATASET, "row 2: start=0, rate=5: must be after 600, and at least 0"),
        (["0,5,1,Gamma,1,1"], LATER, "row 1: rate=5, but "),
        (["0,5,1,Gamma,1,1"], "[]", "is no ServeGen dataset (AttributeError"),
        (["0,5,1,Gamma,1,1"], '{"0": {"input_tokens": "__import__", "output_tokens": ""}}', "is no ServeGen dataset (ValueError"),
        (["0,5,1,Gamma,1,1"], '{"0": {}}', "is no ServeGen dataset (KeyError: 'input_tokens'"),
    ],
)
def test_what_cannot_be_read_is_one_line(client, draw, windows, dataset, message):
    with pytest.raises(UserError) as error:
        draw(client(*windows, dataset=dataset))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_dataset_lies_beside_the_windows_or_is_named(write):
    with pytest.raises(UserError, match=r"^dataset=.*chunk-1-dataset\.json: must be a file that is there"):
        ServeGen(write("0,5,1,Gamma,1,1", name="chunk-1-trace.csv"))
    with pytest.raises(UserError, match=r"^dataset="):
        ServeGen(write("0,5,1,Gamma,1,1", name="other.csv"))
