"""Random streams by name: what one of them draws never moves another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Streams:
    """The streams of one repeat. They depend on (seed, name, repeat) alone, never on the policy or the load."""

    seed: int
    repeat: int = 0

    def number(self, name: str) -> int:
        """64 bits for `name`, the same on every machine and under every PYTHONHASHSEED."""
        text = f"{self.seed}/{name}/{self.repeat}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")

    def __call__(self, name: str) -> np.random.Generator:
        """A generator of its own for `name`."""
        return np.random.Generator(np.random.PCG64(self.number(name)))
