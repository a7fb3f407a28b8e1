"""Last come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Key, Policy, RequestView


@dataclass
class LIFO(Policy):
    """The last arrival first: under overload some are served at once and the others wait for the end of it."""

    def key(self, req: RequestView) -> Key:
        return -req.seq


CHOICES = {"lifo": LIFO}
