"""Files of lengths, as Vidur and Etalon publish them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slotlab import Streams
from slotlab_plugins.workloads.traces.trace import Row, TokenFile, Trace

LENGTHS = ("num_prefill_tokens", "num_decode_tokens")


@dataclass
class Lengths(TokenFile):
    """Lengths from a file (columns num_prefill_tokens, num_decode_tokens) with Poisson arrivals at the load's rate."""

    def rows(self, streams: Streams) -> Iterator[Row]:
        file = self.file
        for row, (prompt, output) in file.csv(LENGTHS):
            yield Row(row, 0.0, file.count(row, LENGTHS[0], prompt), file.count(row, LENGTHS[1], output))

    def placed(self, rows: Iterator[Row], streams: Streams) -> Iterator[Row]:
        """Unit-rate Poisson times, for the rows that are served only: dropped ones leave no gap."""
        rng, time = streams("arrivals"), 0.0
        for row in rows:
            time += rng.exponential()
            row.time = time
            yield row


@dataclass
class Vidur(Trace):
    """A file of lengths that has arrival times too (column arrived_at, in seconds), as of Vidur (Agrawal et al. 2024)."""

    def rows(self, streams: Streams) -> Iterator[Row]:
        file = self.file
        for row, (time, prompt, output) in file.csv(("arrived_at", *LENGTHS)):
            counts = file.count(row, LENGTHS[0], prompt), file.count(row, LENGTHS[1], output)
            yield Row(row, file.number(row, "arrived_at", time), *counts)
