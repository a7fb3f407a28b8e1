"""Traces of Moonshot's Kimi, with the prompts' block hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from slotlab import Streams, UserError, require
from slotlab.limits import LATEST
from slotlab_plugins.workloads.traces.hashed import HashTrace
from slotlab_plugins.workloads.traces.trace import Row


@dataclass
class Mooncake(HashTrace):
    """Mooncake traces (Qin et al., FAST 2025): JSON lines with timestamp in ms, input_length, output_length, hash_ids.

    Hash ids of 512 tokens, which stand for all tokens up to their end, become shared prefixes. The published stamps lie on a
    grid of 3 s, up to 28 requests at once: `spread` draws their times uniformly over so many seconds after the stamp (3 for
    that grid); 0 keeps the stamps.
    """

    spread: float = 0.0

    block: ClassVar[int] = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.spread <= LATEST, "spread", self.spread, f"from 0 to {LATEST:g}")

    def chains(self) -> Iterator[tuple[int, list[int]]]:
        """See `HashTrace.chains`. A hash that follows two others cannot stand for all tokens up to its end."""
        places: dict[int, int | None] = {}
        for row, ids in super().chains():
            for before, id in pairwise((None, *ids)):
                assert id is not None, "the first is no second"
                if places.setdefault(id, before) != before:
                    raise self.file.refuse(row, f"hash_ids: {id} comes {after(before)} here, and {after(places[id])} before that")
            yield row, ids

    def rows(self, streams: Streams) -> Iterator[Row]:
        file, prefixes = self.file, self.prefixes
        for row, (time, prompt, output, ids) in file.json_lines(("timestamp", "input_length", "output_length", "hash_ids")):
            tokens = file.count(row, "input_length", prompt)
            if len(ids) != -(-tokens // self.block):
                raise file.refuse(row, f"{len(ids)} hash_ids do not cover input_length={tokens} in blocks of {self.block}")
            group, shared = prefixes.share(ids, tokens)
            seconds = file.number(row, "timestamp", time) / 1e3
            outputs = file.count(row, "output_length", output)
            yield Row(row, seconds, tokens, outputs, prefix_group=group, prefix_tokens=shared)

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
        return {**super().facts(), "times": times}


def after(block: int | None) -> str:
    """Where a block stands, in words."""
    return "first" if block is None else f"after {block}"
