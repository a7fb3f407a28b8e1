"""Traces of Alibaba's Bailian: conversations, turn by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from slotlab import Arrival, Streams, Tenant, require
from slotlab.limits import LATEST
from slotlab_plugins.workloads.traces.hashed import HashTrace
from slotlab_plugins.workloads.traces.trace import Row

COLUMNS = ("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids")
MOST_ID = 2**63


@dataclass(slots=True)
class Turn(Row):
    """One turn of a conversation."""

    chat: int = -1
    parent: int = -1  # the chat of the turn before; -1: the first


@dataclass
class Bailian(HashTrace):
    """Qwen-Bailian usage traces (Wang et al. 2025): JSON lines with chat_id, parent_chat_id, timestamp in seconds, lengths.

    A turn waits for the answer of the one before, if that is served too and its prompt has room for both. It then thinks
    for the time between the two in the trace, less `answer` seconds per output token: the trace does not say how long the
    answer took. Hash ids of 16 tokens, which stand for these alone, become shared prefixes of the turns that wait for nobody.
    """

    answer: float = 0.0

    block: ClassVar[int] = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.answer <= LATEST, "answer", self.answer, f"from 0 to {LATEST:g}")
        self._turns: Counter[str] = Counter()

    def rows(self, streams: Streams) -> Iterator[Turn]:
        file, prefixes = self.file, self.prefixes
        for row, (chat, parent, time, prompt, output, ids) in file.json_lines(COLUMNS):
            tokens = file.count(row, "input_length", prompt)
            if (most := -(-tokens // self.block)) < len(ids):
                raise file.refuse(
                    row, f"{len(ids)} hash_ids for input_length={tokens}: must be at most {most}, of {self.block} each"
                )
            group, shared = prefixes.share(ids, tokens)
            yield Turn(
                number=row,
                time=file.number(row, "timestamp", time),
                prompt_tokens=tokens,
                output_tokens=file.count(row, "output_length", output),
                prefix_group=group,
                prefix_tokens=shared,
                chat=file.count(row, "chat_id", chat, most=MOST_ID),
                parent=file.count(row, "parent_chat_id", parent, least=-1, most=MOST_ID),
            )

    def draw(self, streams: Streams) -> Iterator[Arrival]:
        self._served_turns: dict[int, tuple[int, Arrival]] = {}
        self._turns.clear()
        yield from super().draw(streams)

    def arrival(self, row: Row, cap: int, tenant: Tenant) -> Arrival:
        assert isinstance(row, Turn), "rows yields turns"
        arrival, known = super().arrival(row, cap, tenant), self._served_turns
        before, parent = known.get(row.parent, (0, None))
        if parent and parent.prompt_tokens + parent.most_output < row.prompt_tokens:
            think = max(0.0, row.time - parent.time - self.answer * parent.most_output)
            arrival = replace(arrival, follows=before, think=think, prefix_group=None, prefix_tokens=0)
        self._turns["wait for an answer" if arrival.follows is not None else "first" if row.parent < 0 else "cut off"] += 1
        known[row.chat] = (len(known), arrival)
        return arrival

    def facts(self) -> Mapping[str, str]:
        turns = ", ".join(f"{count} {kind}" for kind, count in self._turns.items())
        return {**super().facts(), "turns": turns}
