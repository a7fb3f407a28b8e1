"""Slot charts: who holds which slot at which step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from slotlab.record.literal import literal
from slotlab.writing import writing

COLOURS = ("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00")  # Tol's light scheme
EDGE = "#333333"
KINDS = {"prefill": "prefill", "decode": "decode", "recompute": "recompute", "held": "slot held, nothing computed"}
PIXELS = 1080  # width of a panel


@literal()
def draw_slots(cases: Mapping[str, pd.DataFrame], path: Path, title: str) -> None:
    """Draw one panel per case on the same step scale as PNG; request numbers stand in the bars, held but idle slots are
    hatched.

    cases: per label, a table `slots`; of several load points and repeats the first is drawn.
    """
    cases = {label: _first(slots) for label, slots in cases.items()}
    heights = [max(1, int(slots["slot"].max()) + 1) if len(slots) else 1 for slots in cases.values()]
    end = max((int(slots["step"].max()) + 1 for slots in cases.values() if len(slots)), default=1)
    inches = min(14.0, 0.36 * sum(heights)) + 0.65 * len(heights) + 1.2
    figure = Figure(figsize=(12, inches), dpi=100, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=14, fontweight="bold")
    axes = figure.subplots(len(cases), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axis, height, (label, slots) in zip(axes, heights, cases.items(), strict=True):
        _panel(axis, slots, label, height, end)
    axes[-1].set_xlabel("step", fontsize=11)
    patches = [Patch(label=text, **_look(kind, "#bbbbbb")) for kind, text in KINDS.items()]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, fontsize=11)
    with writing(path) as partial:
        figure.savefig(partial, format="png", metadata={"Software": None})


def _first(slots: pd.DataFrame) -> pd.DataFrame:
    labels = slots[["point", "repeat"]]
    return slots[(labels == labels.min()).all(axis=1)]


def _panel(axis: Axes, slots: pd.DataFrame, label: str, height: int, end: int) -> None:
    for stay in _stays(slots):
        colour = COLOURS[int(stay["request"].iloc[0]) % len(COLOURS)]
        for _, part in stay.groupby(stay["kind"].ne(stay["kind"].shift()).cumsum()):
            _bar(axis, part, _look(str(part["kind"].iloc[0]), colour))
        _bar(axis, stay, {"fill": False, "edgecolor": EDGE, "linewidth": 1.1})
        text, middle = str(stay["request"].iloc[0]), (stay["step"].iloc[0] + stay["step"].iloc[-1] + 1) / 2
        if len(stay) * PIXELS / end > 9 * len(text):
            box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
            axis.text(middle, stay["slot"].iloc[0], text, ha="center", va="center", fontsize=10, bbox=box)
    steps = int(slots["step"].max()) + 1 if len(slots) else 0
    axis.set_title(f"{label}: {steps} steps", fontsize=12, loc="left")
    axis.set_xlim(0, end * 1.003)
    axis.set_ylim(height - 0.5, -0.5)
    axis.set_ylabel("slot", fontsize=11)
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_locator(MaxNLocator(integer=True, nbins=20 if scale is axis.xaxis else min(height, 12)))
    axis.spines[["top", "right"]].set_visible(False)


def _stays(slots: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each uninterrupted stay of one request in one slot."""
    rows = slots.sort_values(["slot", "step"])
    same = (rows["slot"].diff() == 0) & (rows["request"].diff() == 0) & (rows["step"].diff() == 1)
    return [stay for _, stay in rows.groupby((~same).cumsum())]


def _bar(axis: Axes, rows: pd.DataFrame, look: Mapping[str, Any]) -> None:
    first, slot = int(rows["step"].iloc[0]), int(rows["slot"].iloc[0])
    axis.add_patch(Rectangle((first, slot - 0.42), len(rows), 0.84, **look))


def _look(kind: str, colour: str) -> dict[str, Any]:
    """How a bar of this kind looks in the request's colour."""
    dark = tuple(0.72 * part for part in to_rgb(colour))
    if kind == "held":
        return {"facecolor": "white", "edgecolor": colour, "hatch": "////", "linewidth": 0}
    if kind == "recompute":
        return {"facecolor": dark, "edgecolor": "white", "hatch": "...", "linewidth": 0}
    return {"facecolor": dark if kind == "prefill" else colour, "linewidth": 0}
