"""What a run shows while it goes on: a bar with the time left, or plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
if not console.is_terminal:
    console.width = 140  # a file or a pipe has no width of its own


class Progress:
    """Counts the requests of all load points and repeats of one run."""

    def __init__(self, name: str, requests: int) -> None:
        self.name = name
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("requests"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task(name, total=requests)
        self.said: set[str] = set()

    def advance(self, requests: int) -> None:
        """So many more requests have ended."""
        self.bar.advance(self.task, requests)

    def point(self, row: Mapping[str, Any]) -> None:
        """A load point is done."""
        if not console.is_terminal:
            console.print(f"{self.name}: {describe(row)}")

    def remark(self, text: str) -> None:
        """Say something once."""
        if text not in self.said:
            self.said.add(text)
            console.print(f"{self.name}: {text}")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()


def describe(row: Mapping[str, Any]) -> str:
    """A load point in one line."""
    parts = [f"point {row['point']}"]
    if "rate" in row:
        parts.append(f"rate {row['rate']:.3g}/s")
    if "concurrency" in row:
        parts.append(f"{row['concurrency']} clients")
    for key, name in (("output_throughput", "tokens/s"), ("ttft_mean", "mean TTFT"), ("e2e_mean", "mean E2E")):
        if key in row:
            parts.append(f"{name} {row[key]:.4g}")
    marks = [row["verdict"]] if "verdict" in row else []
    return ", ".join([*parts, *marks, *(["ended early"] if row.get("ended_early") else [])])
