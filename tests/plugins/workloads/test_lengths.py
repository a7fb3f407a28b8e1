"""Length laws against theory; pairs that stay together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from slotlab import Streams, UserError
from slotlab_plugins.laws.lengths import Lengths, read_pairs
from slotlab_plugins.workloads.synthetic import Synthetic

N = 50_000


def draw(law, n=N, seed=0):
    return np.array(law.draw(Streams(seed)("prompts"), n))


def test_lognormal_lengths_have_their_law():
    values = draw(Lengths(mean=2000.0, sigma=0.5, high=10**6))
    law = stats.lognorm(0.5, scale=2000.0 * math.exp(-0.125))
    assert values.mean() == pytest.approx(2000.0, rel=0.01)
    assert stats.kstest(values, law.cdf).statistic < 1.63 / math.sqrt(N) + law.pdf(1500) / 2


def test_uniform_lengths_take_every_value_equally_often():
    values = draw(Lengths("uniform", low=3, high=10))
    counts = np.bincount(values)[3:]
    assert len(counts) == 8 and stats.chisquare(counts).pvalue > 0.01


def test_zipf_lengths_follow_the_power():
    values = draw(Lengths("zipf", low=2, high=50, exponent=1.3))
    weights = np.arange(2, 51) ** -1.3
    assert stats.chisquare(np.bincount(values, minlength=51)[2:], N * weights / weights.sum()).pvalue > 0.01


def test_quantiles_come_back():
    asked = [10.0, 100.0, 400.0, 1000.0, 8000.0]
    values = draw(Lengths("quantiles", quantiles=asked, high=8000))
    assert np.quantile(values, [0.25, 0.5, 0.75]) == pytest.approx(asked[1:4], rel=0.03)
    assert np.quantile(values, 0.375) == pytest.approx(200.0, rel=0.03), "between two of them they rise geometrically"
    assert values.min() >= 10 and values.max() <= 8000


def test_quantiles_may_stand_at_probabilities_of_their_own():
    values = draw(Lengths("quantiles", quantiles=[10, 20, 500], probabilities=[0, 0.9, 1], high=500))
    assert np.mean(values <= 20) == pytest.approx(0.9, abs=0.01)


def test_a_law_may_shift_midway():
    plain, shifted = draw(Lengths("fixed", mean=20), 100), draw(Lengths("fixed", mean=20, shift=2.5, shift_at=0.3), 100)
    assert set(plain) == {20}
    assert shifted.tolist() == [20] * 30 + [50] * 70
    assert set(draw(Lengths("fixed", mean=20, shift=100.0, shift_at=0.0, high=64), 9)) == {64}, "the limits still hold"


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "pairs.csv"
        path.write_text(text)
        return str(path)

    return write


def test_prompt_and_output_of_a_pair_stay_together(csv):
    """And the columns are read by name, whatever their order."""
    workload = Synthetic(requests=3000, pairs=csv("output,note,prompt\n1,x,10\n2,y,20\n3,z,30\n"))
    rows = list(workload.draw(Streams(0)))
    assert {(row.prompt_tokens, row.output_tokens) for row in rows} == {(10, 1), (20, 2), (30, 3)}
    assert np.bincount([row.output_tokens for row in rows])[1:] == pytest.approx(1000, rel=0.1)
    plain = list(Synthetic(requests=3000).draw(Streams(0)))
    assert [row.time for row in rows] == [row.time for row in plain]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column output and prompt in an empty file"),
        ("prompt,answer\n1,2\n", "no column output in ['prompt', 'answer']"),
        ("prompt,output\n", "no rows below the header"),
        ("prompt,output\n1,2\n1,x\n", "line 3: prompt=1, output=x: must be whole numbers from 1 on"),
        ("prompt,output\n0,2\n", "line 2: prompt=0, output=2: must be whole numbers from 1 on"),
        ("prompt,output\n5\n", "line 2: prompt=5, output=None: must be whole numbers from 1 on"),
    ],
)
def test_a_bad_file_of_pairs_is_named_with_its_line(csv, text, message):
    path = csv(text)
    with pytest.raises(UserError) as error:
        read_pairs(path)
    assert str(error.value) == f"workload.pairs={path}: {message}"


def test_a_missing_file_of_pairs_is_named():
    with pytest.raises(UserError, match=r"^workload\.pairs=nowhere\.csv: no such file$"):
        read_pairs("nowhere.csv")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lengths(mean=0.5), "mean=0.5: must be at least 1 and at most 1000000000"),
        (lambda: Lengths(mean=math.inf), "mean=inf: must be finite, and at least 1 and at most 1000000000"),
        (lambda: Lengths(sigma=-1.0), "sigma=-1.0: must be at least 0 and at most 20"),
        (lambda: Lengths(exponent=-1.0), "exponent=-1.0: must be at least 0 and at most 20"),
        (lambda: Lengths(shift=0.0), "shift=0.0: must be greater than 0 and at most 1000000000"),
        (lambda: Lengths(shift_at=1.5), "shift_at=1.5: must be from 0 to 1"),
        (lambda: Lengths("quantiles"), "quantiles=[]: must be two or more rising numbers from 1 on, at most 1000000000"),
        (
            lambda: Lengths("quantiles", quantiles=[4, 2]),
            "quantiles=[4, 2]: must be two or more rising numbers from 1 on, at most 1000000000",
        ),
        (
            lambda: Lengths("quantiles", quantiles=[0, 2]),
            "quantiles=[0, 2]: must be two or more rising numbers from 1 on, at most 1000000000",
        ),
        (
            lambda: Lengths("quantiles", quantiles=[1, 2], probabilities=[0.1, 1]),
            "probabilities=[0.1, 1]: must be 2 rising numbers from 0 to 1, one for each quantile",
        ),
    ],
)
def test_what_is_no_law_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message
