"""Tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from slotlab.lab.progress import console

if TYPE_CHECKING:
    from slotlab.lab.run import Run

COLUMNS = {
    "rate": "rate",
    "concurrency": "clients",
    "output_throughput": "tokens/{unit}",
    "ttft_mean": "mean TTFT",
    "ttft_p99": "p99 TTFT",
    "tpot_mean": "mean TPOT",
    "e2e_mean": "mean E2E",
    "slot_utilisation": "slot use",
    "batch_efficiency": "batch eff.",
    "makespan": "makespan",
    "preemptions": "preempted",
    "rejected": "rejected",
    "verdict": "verdict",
    "ended_early": "ended early",
}


def print_curve(run: Run) -> None:
    """The curve of one run, and where it is."""
    unit = run.meta["time_unit"]
    table = Table(title=f"{run.place.name}  (times in {'steps' if unit == 'step' else 'seconds'})", title_justify="left")
    names = [name for name in COLUMNS if any(row.get(name) for row in run.rows)]
    for name in names:
        table.add_column(COLUMNS[name].format(unit=unit), justify="left" if name == "verdict" else "right")
    for row in run.rows:
        table.add_row(*(cell(row.get(name)) for name in names))
    console.print(table)
    console.print(f"folder: {run.place.folder}")


def print_facts(run: Run) -> None:
    """What executes the plans (device, weights, implementation of each op), what a trace's rows became, and the remarks."""
    for facts in (run.meta["engine"], run.meta["workload"]):
        if facts:
            console.print(f"{run.place.name}: " + ", ".join(f"{name} {value}" for name, value in facts.items()))
    for sentence in run.meta["remarks"].values():
        console.print(f"{run.place.name}: {sentence}", style="yellow")


def print_cost(run: Run) -> None:
    """What the run cost this machine."""
    console.print(f"wall time {run.meta['wall_s']:.1f} s, peak memory {run.meta['peak_mib']} MiB")


def cell(value: Any) -> str:
    """A number with four digits, or a dash for what is undefined."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_table(title: str, header: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A plain table of rows that share `header`."""
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="left" if isinstance(rows[0].get(name), str) else "right")
    for row in rows:
        table.add_row(*(cell(row.get(name)) for name in header))
    console.print(table)
