"""BurstGPT: requests to ChatGPT and GPT-4 at a university."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slotlab import Streams
from slotlab_plugins.workloads.traces.trace import Row, Trace


@dataclass
class BurstGPT(Trace):
    """BurstGPT (Wang et al. 2024), with or without its session columns. Requests that failed, with no response, are dropped."""

    def rows(self, streams: Streams) -> Iterator[Row]:
        file = self.file
        for row, (time, prompt, output) in file.csv(("Timestamp", "Request tokens", "Response tokens")):
            tokens = file.count(row, "Response tokens", output)
            seconds = file.number(row, "Timestamp", time)
            yield Row(row, seconds, file.count(row, "Request tokens", prompt), tokens, "" if tokens else "failed")
