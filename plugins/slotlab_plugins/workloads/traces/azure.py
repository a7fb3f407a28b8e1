"""Traces of Azure's LLM services."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from slotlab import Streams
from slotlab_plugins.workloads.traces.file import TraceFile
from slotlab_plugins.workloads.traces.trace import Row, Trace


@dataclass
class Azure(Trace):
    """Azure LLM inference traces of 2023 (Splitwise, Patel et al. 2024) and 2024 (DynamoLLM, Stojkovic et al. 2025).

    Columns TIMESTAMP, ContextTokens, GeneratedTokens. All decimals of a second count, seven in 2023; a zone is allowed.
    """

    def rows(self, streams: Streams) -> Iterator[Row]:
        file, stamps = self.file, Stamps()
        for row, (stamp, prompt, output) in file.csv(("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
            time = stamps.seconds(file, row, stamp)
            yield Row(row, time, file.count(row, "ContextTokens", prompt), file.count(row, "GeneratedTokens", output))


class Stamps:
    """Time stamps as seconds since the whole second of the first: small numbers, which keep every decimal."""

    def __init__(self) -> None:
        self.zero: datetime | None = None
        self.known: tuple[str, str, float] = ("", "", 0.0)  # rows of one second share all but the fraction

    def seconds(self, file: TraceFile, row: int, stamp: str) -> float:
        """`2023-11-16 18:15:46.6805900`, with any number of decimals, perhaps with `Z` or `+00:00` behind it."""
        whole, _, rest = stamp.strip().partition(".")
        digits = rest.rstrip("Z").partition("+")[0].partition("-")[0]
        zone = rest[len(digits) :]
        if self.known[:2] != (whole, zone):
            self.known = (whole, zone, self._whole(file, row, stamp, whole + zone))
        try:
            return self.known[2] + (int(digits) / 10 ** len(digits) if digits else 0.0)
        except ValueError:
            raise self.refuse(file, row, stamp) from None

    def _whole(self, file: TraceFile, row: int, stamp: str, text: str) -> float:
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise self.refuse(file, row, stamp) from None
        time = time.replace(tzinfo=time.tzinfo or UTC)
        self.zero = self.zero or time
        return (time - self.zero).total_seconds()

    def refuse(self, file: TraceFile, row: int, stamp: str) -> Exception:
        """The error about a stamp."""
        return file.refuse(row, f"TIMESTAMP={stamp}: must be like 2023-11-16 18:15:46.6805900")
