"""Figures of a run and of a sweep. matplotlib through its objects, drawn by Agg; equal input gives equal bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from slotlab.record.literal import literal
from slotlab.record.slot_chart import draw_slots
from slotlab.writing import writing

__all__ = ["draw_curve", "draw_curves", "draw_slots"]

Row = Mapping[str, Any]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")  # Okabe and Ito: colour-blind safe
MARKERS = "osD^vPX*"  # one more than colours: the pairs repeat after 56 curves
DASHES = ("-", "--", ":", "-.")
GREY = "#666666"


@literal()
def draw_curve(rows: Sequence[Row], path: Path, title: str, time_unit: str) -> None:
    """The throughput-latency curve of one run as PNG: TTFT and E2E, mean and p99, against output throughput.

    rows: the figures of each load point, from the lowest load to the highest. Bars show `_lo` to `_hi`; a hollow
    point has the `verdict` saturated; the numbers are the offered rates.
    """
    figure = _figure(title, height=5.2)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, key, name in zip(axes, ("ttft", "e2e"), ("time to first token", "end-to-end latency"), strict=True):
        _line(axis, rows, "output_throughput", f"{key}_mean", 0, "mean")
        _line(axis, rows, "output_throughput", f"{key}_p99", 1, "p99")
        if any(f"bound_{key}_mean" in row for row in rows):
            _bound(axis, rows, f"bound_{key}_mean")
        _rates(axis, rows, f"{key}_mean", time_unit)
        _dress(axis, name, f"output throughput (tokens/{time_unit})", f"latency ({time_unit})", log=True)
        axis.yaxis.set_tick_params(labelleft=True)
    _save(figure, axes[1], path)


@literal()
def draw_curves(curves: Mapping[str, Sequence[Row]], path: Path, title: str, time_unit: str) -> None:
    """Many runs in one figure as PNG, one line per label: latency and throughput against the load.

    The load is the number of concurrent clients of a closed loop, else the offered rate; where there is no rate (all
    requests arrive at once) it is the number of the load point.
    """
    names = {"concurrency": "concurrent clients", "offered_rate": f"offered rate (requests/{time_unit})"}
    x = next((key for key in names if any(key in row for rows in curves.values() for row in rows)), "point")
    panels = {
        "mean time to first token": "ttft_mean",
        "mean end-to-end latency": "e2e_mean",
        "p99 time to first token": "ttft_p99",
        "output throughput": "output_throughput",
    }
    figure = _figure(title, height=8 + 0.24 * len(curves) / _columns(curves))
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for axis, (name, key) in zip(axes, panels.items(), strict=True):
        for i, (label, rows) in enumerate(curves.items()):
            _line(axis, rows, x, key, i, label)
        tokens = key == "output_throughput"
        unit = f"tokens/{time_unit}" if tokens else f"latency ({time_unit})"
        _dress(axis, name, names.get(x, "load point"), unit, log=not tokens)
    for axis in axes[:2]:
        axis.set_xlabel("")
    if x == "point":
        axes[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[3].set_ylim(bottom=0)
    _save(figure, axes[0], path)


def _figure(title: str, height: float) -> Figure:
    figure = Figure(figsize=(12, height), dpi=100, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=14, fontweight="bold")
    return figure


def _line(axis: Axes, rows: Sequence[Row], x: str, y: str, style: int, label: str) -> None:
    """One curve, in the order of the load; points where x or y is undefined are left out."""
    rows = [row for row in rows if x in row and y in row]
    colour, marker = COLOURS[style % len(COLOURS)], MARKERS[style % len(MARKERS)]
    xs, ys = [row[x] for row in rows], [row[y] for row in rows]
    dashes = DASHES[style // len(COLOURS) % len(DASHES)]
    label = label if label[:1] not in ("", "_") else f" {label}"  # such a one would be left out of the legend
    axis.plot(xs, ys, dashes, color=colour, marker=marker, markersize=6, linewidth=1.8, label=label)
    for row in rows:
        if row.get("verdict") == "saturated":
            axis.plot(row[x], row[y], marker, color=colour, markersize=6, markerfacecolor="white", zorder=3)
        if f"{y}_lo" in row:
            axis.vlines(row[x], row[f"{y}_lo"], row[f"{y}_hi"], color=colour, linewidth=1.2, alpha=0.7)


def _bound(axis: Axes, rows: Sequence[Row], y: str) -> None:
    """What an oracle would have reached, and the engine's roofline where it is near."""
    known = [row for row in rows if y in row and "output_throughput" in row]
    xs = [row["output_throughput"] for row in known]
    axis.plot(xs, [row[y] for row in known], ":", color=GREY, linewidth=1.5, label="mean under clairvoyant SRPT")
    roof = max((row.get("bound_output_throughput", 0.0) for row in known), default=0.0)
    if xs and max(xs) < roof < 1.3 * max(xs):
        axis.axvline(roof, color=GREY, linestyle=":", linewidth=1.0)
        axis.text(roof, 0.02, "roofline ", transform=axis.get_xaxis_transform(), ha="right", color=GREY, fontsize=8)


def _rates(axis: Axes, rows: Sequence[Row], y: str, time_unit: str) -> None:
    """Write the offered rate beside each point."""
    for row in rows:
        if "offered_rate" in row and "output_throughput" in row and y in row:
            text = f"{row['offered_rate']:.3g}/{time_unit}" + (", ended early" if row.get("ended_early") else "")
            place = (row["output_throughput"], row[y])
            axis.annotate(text, place, (6, -11), textcoords="offset points", fontsize=8, color=GREY)


def _dress(axis: Axes, name: str, x_label: str, y_label: str, log: bool) -> None:
    axis.set_title(name, fontsize=12, loc="left")
    axis.set_xlabel(x_label, fontsize=11)
    axis.set_ylabel(y_label, fontsize=11)
    axis.margins(x=0.07, y=0.12)
    if log:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(True, color="#dddddd", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    if not any(np.size(line.get_xdata()) for line in axis.lines):
        axis.text(0.5, 0.5, "undefined at every point", transform=axis.transAxes, ha="center", color=GREY)


def _columns(labels: Collection[str]) -> int:
    """As many legend columns as fit the figure's width."""
    return max(1, min(len(labels), 150 // (max(map(len, labels), default=0) + 8)))


def _save(figure: Figure, axis: Axes, path: Path) -> None:
    handles, labels = axis.get_legend_handles_labels()
    hollow = Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none")
    handles, labels = [*handles, hollow], [*labels, "hollow: saturated"]
    columns = _columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=11)
    with writing(path) as partial:
        figure.savefig(partial, format="png", metadata={"Software": None})
