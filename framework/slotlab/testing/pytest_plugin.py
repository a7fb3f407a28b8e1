"""For pytest: an option for the number of scenarios, and a table of what plugins cost at the end."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from typing import Any

import pytest

from slotlab.testing.session import EXAMPLES, SESSION, SIZES

COST = "slotlab cost"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--slotlab-examples`."""
    text = f"scenarios per conformance check (default: {EXAMPLES})"
    parser.getgroup("slotlab").addoption("--slotlab-examples", type=int, default=EXAMPLES, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Take the option over."""
    SESSION.examples = config.getoption("--slotlab-examples")
    if SESSION.examples < 1:
        raise pytest.UsageError(f"--slotlab-examples={SESSION.examples}: must be at least 1")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Put the costs that a test has measured into its report, which pytest-xdist brings home."""
    SESSION.costs.clear()
    try:
        return (yield)
    finally:
        item.user_properties += [(COST, asdict(cost)) for cost in SESSION.costs]


def is_cost(entry: Any) -> bool:
    """Whether an entry is ours: other plugins may have left anything among the properties of a test."""
    return isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], str) and entry[0] == COST


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what a step costs, by plugin and number of waiting requests."""
    reports = [
        report for reports in terminalreporter.stats.values() for report in reports if isinstance(report, pytest.TestReport)
    ]
    properties = (entry for report in reports if report.when == "call" for entry in report.user_properties)
    rows: list[Any] = [entry[1] for entry in properties if is_cost(entry)]
    if not rows:
        return
    terminalreporter.section("slotlab: what a step costs (median microseconds of this run, beside so many waiting requests)")
    width = max(len(row["plugin"]) for row in rows)
    heads = "".join(f"{size:>10,}" for size in SIZES)
    terminalreporter.write_line(f"{'':{width}}{heads}   calls beyond the default's at 10,000")
    for row in sorted(rows, key=lambda row: str(row["plugin"])):
        times = {int(size): f"{time:.0f}" for size, time in row["microseconds"].items()}
        cells = "".join(f"{times.get(size, ''):>10}" for size in SIZES)
        terminalreporter.write_line(f"{row['plugin']:{width}}{cells}   {row['calls']:,}")
