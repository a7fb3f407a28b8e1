"""The token ids that a real engine is given, and what stands for them where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from slotlab import Arrival, Streams, UserError

Words = str | tuple[tuple[str, str], ...]


class Conversations(dict[int, list[int]]):
    """Prompt and answer of each request, by id: the ids of its words where it has any, else random ones.

    Everybody in a prefix group begins alike. A prompt that follows another request begins with that one's prompt and answer,
    so it is made when it is first looked at; where that answer was cut short, random ids fill the gap.
    """

    def __init__(self, arrivals: Sequence[Arrival], streams: Streams, vocab: int, words: Mapping[Words, list[int]]) -> None:
        super().__init__()
        self.arrivals, self.streams, self.vocab, self.words = arrivals, streams, vocab, words
        for id, arrival in enumerate(arrivals):
            if arrival.follows is None:
                self[id] = self._make(id)

    def __missing__(self, id: int) -> list[int]:
        self[id] = ids = self._make(id)
        return ids

    def _make(self, id: int) -> list[int]:
        arrival = self.arrivals[id]
        if arrival.text is not None:
            return list(self.words[arrival.text])
        if arrival.follows is not None:
            begin = list(self[arrival.follows])
        elif arrival.prefix_group is not None:
            begin = self._random(f"prefix/{arrival.prefix_group}", arrival.prefix_tokens)
        else:
            begin = []
        own = arrival.prompt_tokens - len(begin)
        assert own > 0, f"request {id}: a prompt of {arrival.prompt_tokens} tokens cannot begin with {len(begin)}"
        return begin + self._random(f"prompt/{id}", own)

    def _random(self, stream: str, n: int) -> list[int]:
        ids: list[int] = self.streams(stream).integers(self.vocab, size=n).tolist()
        return ids


class Texts:
    """Names what fills the blocks of each request: equal where `Conversations` would have equal tokens, without making any.

    `lengths`: prompt and answer of those who have left, in tokens.
    """

    def __init__(self, arrivals: Sequence[Arrival], block_size: int) -> None:
        self.arrivals, self.block_size = arrivals, block_size
        self.lengths: dict[int, int] = {}

    def content(self, id: int, block: int) -> tuple[int | str, ...]:
        """Who wrote this block first (a request, or a prefix group), and which of its blocks it is."""
        arrival, end = self.arrivals[id], (block + 1) * self.block_size
        while arrival.follows is not None and end <= self.lengths.get(arrival.follows, 0):
            id = arrival.follows
            arrival = self.arrivals[id]
        if arrival.follows is None and arrival.prefix_group is not None and end <= arrival.prefix_tokens:
            return "prefix", arrival.prefix_group, block
        return id, block


def encode(tokenizer: Any, text: Words, vocab: int, now: datetime) -> list[int]:
    """The ids of a prompt in words, or of a chat. One that comes to nothing, or that the model cannot take, is an error."""
    from slotlab_kernels.shape import ModelFileError

    try:
        ids: list[int] = tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode_chat(text, now)
    except ModelFileError as error:
        raise UserError(f"workload: {error}") from None
    prompt = f"{text!r:.80}"
    if not ids:
        raise UserError(f"workload: the prompt {prompt} has no tokens")
    if (most := max(ids)) >= vocab:
        token = tokenizer.decode([most])
        raise UserError(f"workload: the prompt {prompt} has token {most} ({token!r}), and the model knows 0 to {vocab - 1}")
    return ids
