"""Traces of Azure's LLM services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from slotlab import Streams
from slotlab_plugins.workloads.traces.file import TraceFile, shown
from slotlab_plugins.workloads.traces.trace import Row, Trace

SECOND = r"(?P<second>[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})"
STAMP = re.compile(SECOND + r"([.](?P<fraction>[0-9]+))?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?")


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
        self.known: tuple[str, str | None] | None = None  # rows of one second share all but the fraction
        self.whole = 0.0

    def seconds(self, file: TraceFile, row: int, stamp: str) -> float:
        """`2023-11-16 18:15:46.6805900`, with any number of decimals, perhaps with `Z` or `+00:00` behind it."""
        parts = STAMP.fullmatch(stamp.strip())
        if not parts:
            raise self.refuse(file, row, stamp)
        if self.known != (known := (parts["second"], parts["zone"])):
            self.whole = self._whole(file, row, stamp, *known)
            self.known = known
        return self.whole + float(f"0.{parts['fraction'] or 0}")

    def _whole(self, file: TraceFile, row: int, stamp: str, second: str, zone: str | None) -> float:
        if self.known and (self.known[1] is None) != (zone is None):
            raise file.refuse(row, f"TIMESTAMP={stamp}: all rows or none must have a zone")
        try:
            time = datetime.fromisoformat(second + (zone or "Z"))
            self.zero = self.zero or time
            return (time - self.zero).total_seconds()
        except (ValueError, OverflowError):
            raise self.refuse(file, row, stamp) from None

    def refuse(self, file: TraceFile, row: int, stamp: str) -> Exception:
        """The error about a stamp."""
        return file.refuse(row, f"TIMESTAMP={shown(stamp)}: must be like 2023-11-16 18:15:46.6805900")
