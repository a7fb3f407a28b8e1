"""Figures: that they are drawn, and drawn the same twice. What they look like is for eyes."""

import pytest
from matplotlib.figure import Figure

from slotlab.record.charts import draw_curve, draw_curves, draw_slots

ROWS = [
    {"point": 0, "offered_rate": 1, "output_throughput": 90, "ttft_mean": 0.2, "ttft_mean_lo": 0.1, "ttft_mean_hi": 0.3},
    {"point": 1, "offered_rate": 2, "output_throughput": 150, "ttft_mean": 4, "e2e_mean": 9, "verdict": "saturated"},
]
PNG = b"\x89PNG\r\n\x1a\n"


def drawings(serve):
    cases = {"static": serve([6, 2, 8, 3, 5], static=True)["slots"], "continuous": serve([6, 2, 8, 3, 5])["slots"]}
    return {
        "curve": lambda path: draw_curve(ROWS, path, "a run", "s"),
        "curves": lambda path: draw_curves({f"policy={i}": ROWS for i in range(3)}, path, "a sweep", "step"),
        "slots": lambda path: draw_slots(cases, path, "slots"),
    }


@pytest.mark.parametrize("name", ["curve", "curves", "slots"])
def test_figures_are_byte_identical_when_drawn_again(serve, tmp_path, name):
    draw = drawings(serve)[name]
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(PNG)
    assert content == (tmp_path / "b.png").read_bytes()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["$\\frac{$", "_private", "", "\U0001f600", "a\nb"])
def test_names_are_drawn_as_they_are(serve, tmp_path, monkeypatch, name):
    """`$` began a formula, whose error lost the run; a name with `_` in front was left out of the legend."""
    legends = []
    monkeypatch.setattr(Figure, "legend", lambda self, handles, labels, **look: legends.append(labels))
    draw_curves({name: ROWS, "other": ROWS}, tmp_path / "curves.png", name, "s")
    assert [label.strip() for label in legends[0][:2]] == [name, "other"]
    monkeypatch.undo()
    draw_slots({name: serve([1])["slots"]}, tmp_path / "slots.png", name)


@pytest.mark.filterwarnings("error")
def test_nothing_to_draw_is_still_a_figure(serve, tmp_path):
    draw_curve([{"point": 0}], tmp_path / "curve.png", "undefined", "s")
    draw_curves({}, tmp_path / "curves.png", "no runs", "s")
    draw_slots({"empty": serve([1])["slots"].iloc[:0]}, tmp_path / "slots.png", "no steps")
    assert len(list(tmp_path.iterdir())) == 3


def test_of_several_repeats_the_first_is_charted(serve, tmp_path):
    slots = serve([3, 1])["slots"]
    draw_slots({"x": slots}, tmp_path / "one.png", "slots")
    both = slots.merge(slots.assign(repeat=1, step=slots["step"] + 50), how="outer")
    draw_slots({"x": both}, tmp_path / "two.png", "slots")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
