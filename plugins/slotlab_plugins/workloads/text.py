"""Prompts in words."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotlab import Arrival, Streams, UserError, Workload, require
from slotlab.limits import MOST_REQUESTS, MOST_TOKENS, PRIORITIES
from slotlab.names import brief
from slotlab.reading import is_file
from slotlab_plugins.laws.arrivals import Arrivals

HALF = re.compile("[\ud800-\udfff]")
MOST_CHARACTERS = 10**7  # of a prompt: a tokenizer is to come to an end


@dataclass
class Text(Workload):
    """Prompts from the lines of a JSONL file, in their order; answers end where the model ends them, so nobody knows how long.

    A line is {"prompt": words}, or {"messages": [{"role": ..., "content": words}, ...]} for the model's chat template.
    `requests`: the first so many; null: all. A `tenant` and a `priority` may stand beside the prompt.
    """

    path: str = ""
    requests: int | None = None
    max_tokens: int = 256
    arrivals: Arrivals = field(default_factory=Arrivals)

    def __post_init__(self) -> None:
        require(self.path != "", "path", "''", "the path of a JSONL file")
        wanted = self.requests
        require(wanted is None or 1 <= wanted <= MOST_REQUESTS, "requests", wanted, f"from 1 to {MOST_REQUESTS}, or null")
        require(1 <= self.max_tokens <= MOST_TOKENS, "max_tokens", self.max_tokens, f"from 1 to {MOST_TOKENS}")

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        rows = list(self._rows())
        times = self.arrivals.draw(streams("arrivals"), len(rows), len(rows))
        for time, (text, row) in zip(times, rows, strict=True):
            tenant, priority = row.get("tenant", "default"), row.get("priority", 0)
            yield Arrival(float(time), 0, self.max_tokens, None, tenant, priority, text=text)

    def _rows(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The prompt of each line, and the line."""
        file, found = Path(self.path), 0
        if not is_file(self.path):
            raise UserError(f"workload.path={brief(self.path)}: no such file")
        number = 0
        try:
            with file.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, 1):
                    if found == self.requests:
                        return
                    if line.strip():
                        found += 1
                        yield parse(line, f"workload.path={self.path}: line {number}")
        except UnicodeDecodeError as error:
            raise UserError(f"workload.path={self.path}: line {number + 1}: is not UTF-8 ({error})") from None
        except OSError as error:
            raise UserError(f"workload.path={self.path}: cannot be read ({error.strerror})") from None
        if found < (self.requests or 1):
            raise UserError(f"workload.path={self.path}: it has {found} prompts, fewer than requests={self.requests or 1}")


def parse(line: str, place: str) -> tuple[Any, dict[str, Any]]:
    """The prompt that a line holds, as `Arrival.text`, and the line's object; an error names the place and the reason."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: is not JSON ({error})") from None
    match row:
        case {"prompt": str(words)} if words:
            text: Any = words
        case {"messages": [_, *_] as messages}:
            text = tuple(message(entry, place) for entry in messages)
        case _:
            raise UserError(f'{place}: must have a "prompt" that is words, or "messages"')
    tenant, priority = row.get("tenant", ""), row.get("priority", 0)
    if not isinstance(tenant, str) or type(priority) is not int:
        raise UserError(f"{place}: tenant must be words, and priority a whole number")
    if not PRIORITIES[0] <= priority <= PRIORITIES[1]:
        raise UserError(f"{place}: priority must be from {PRIORITIES[0]} to {PRIORITIES[1]}")
    for some in (tenant, *([text] if isinstance(text, str) else itertools.chain(*text))):
        if len(some) > MOST_CHARACTERS or HALF.search(some):
            raise UserError(
                f"{place}: words must be at most {MOST_CHARACTERS} characters, and none of them half of one (a surrogate)"
            )
    return text, row


def message(entry: Any, place: str) -> tuple[str, str]:
    """Role and words of a chat message."""
    match entry:
        case {"role": str(role), "content": str(words)}:
            return role, words
    raise UserError(f'{place}: a message must have a "role" and a "content", both words')


CHOICES = {"text": Text}
