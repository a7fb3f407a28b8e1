"""Traces of Moonshot's Kimi, with the prompts' block hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from slotlab import Streams, UserError, require
from slotlab_plugins.workloads.traces.prefixes import Prefixes
from slotlab_plugins.workloads.traces.trace import Row, Trace

BLOCK = 512  # tokens per hash


@dataclass
class Mooncake(Trace):
    """Mooncake traces (Qin et al., FAST 2025): JSON lines with timestamp in ms, input_length, output_length, hash_ids.

    Hash ids of 512 tokens become shared prefixes. The published stamps lie on a grid of 3 s, up to 28 requests at once:
    `spread` draws their times uniformly over so many seconds after the stamp (3 for that grid); 0 keeps the stamps.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.spread >= 0, "spread", self.spread, "at least 0")

    @cached_property
    def prefixes(self) -> Prefixes:
        """Which prompts begin alike; reads the file once."""
        file = self.file
        return Prefixes.of(chain_of(file.refuse, row, ids) for row, (ids,) in file.json_lines(("hash_ids",)))

    def rows(self, streams: Streams) -> Iterator[Row]:
        file, prefixes = self.file, self.prefixes
        for row, (time, prompt, output, ids) in file.json_lines(("timestamp", "input_length", "output_length", "hash_ids")):
            tokens = file.count(row, "input_length", prompt)
            if len(ids) != -(-tokens // BLOCK):
                raise file.refuse(row, f"{len(ids)} hash_ids do not cover input_length={tokens} in blocks of {BLOCK}")
            group, shared = prefixes.group(ids)
            seconds = file.number(row, "timestamp", time) / 1e3
            outputs = file.count(row, "output_length", output)
            yield Row(row, seconds, tokens, outputs, prefix_group=group, prefix_tokens=min(shared * BLOCK, tokens))

    def placed(self, rows: Iterator[Row], streams: Streams) -> Iterator[Row]:
        """Stamps kept, or spread; the order of the file stays."""
        if not self.spread:
            yield from rows
            return
        rng, last = streams("spread"), 0.0
        for stamp, group in groupby(rows, lambda row: row.time):
            if stamp < last:
                raise UserError(f"workload.spread={self.spread}: must be at most the gap between two stamps of {self.path}")
            last = stamp + self.spread
            some = list(group)
            for row, offset in zip(some, sorted(rng.random(len(some))), strict=True):
                row.time = stamp + self.spread * float(offset)
                yield row

    def facts(self) -> Mapping[str, str]:
        times = f"spread over {self.spread:g} s after each stamp" if self.spread else "the file's stamps, ties kept"
        return {**super().facts(), "times": times, "prefixes": f"from hash_ids of {BLOCK} tokens"}


def chain_of(refuse: Any, row: int, ids: object) -> list[int]:
    """The block hashes of a row."""
    if not isinstance(ids, list) or not all(isinstance(id, int) for id in ids):
        raise refuse(row, f"hash_ids={ids}: must be a list of whole numbers")
    return ids
