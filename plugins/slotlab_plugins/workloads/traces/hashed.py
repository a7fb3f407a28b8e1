"""Traces whose rows name the blocks of their prompts by hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from slotlab_plugins.workloads.traces.file import shown
from slotlab_plugins.workloads.traces.prefixes import Prefixes
from slotlab_plugins.workloads.traces.trace import Trace


@dataclass
class HashTrace(Trace):
    """A trace of JSON lines whose `hash_ids`, one per `block` tokens, become shared prefixes."""

    block: ClassVar[int]

    @cached_property
    def prefixes(self) -> Prefixes:
        """Which prompts begin alike; reads the file once."""
        return Prefixes.of((ids for _, ids in self.chains()), self.block)

    def chains(self) -> Iterator[tuple[int, list[int]]]:
        """The number of each row, and its hashes."""
        for row, (ids,) in self.file.json_lines(("hash_ids",)):
            if not isinstance(ids, list) or not all(type(id) is int for id in ids):
                raise self.file.refuse(row, f"hash_ids={shown(ids)}: must be a list of whole numbers")
            yield row, ids

    def facts(self) -> Mapping[str, str]:
        return {**super().facts(), "prefixes": f"from hash_ids of {self.block} tokens"}
