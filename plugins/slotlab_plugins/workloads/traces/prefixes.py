"""Shared beginnings of prompts, from the chained block hashes of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Prefixes:
    """Groups of requests whose prompts begin alike.

    The hash of a block stands for all tokens up to its end, so the chains of a trace form a tree, and a group is one
    path in it: from the root on, at each branch to the block that most requests have. A request is in the group with
    which it shares most, for as many blocks as anybody else has too. Sharing along less used branches is lost: of the
    36.6 % of the prompt blocks of Mooncake's conversation trace that an earlier request had, 35.3 % are kept.
    """

    uses: Counter[int]  # requests by block
    next: dict[int, int]  # the most used block behind a block, where two or more requests have it

    @classmethod
    def of(cls, chains: Iterable[Sequence[int]]) -> Prefixes:
        """From the block hashes of all requests; keeps one entry per block, or per pair of neighbours."""
        uses, pairs = Counter[int](), Counter[tuple[int, int]]()
        for chain in chains:
            uses.update(chain)
            pairs.update(pairwise(chain))
        following: dict[int, int] = {}
        for (block, after), count in pairs.items():
            if count > 1 and (block not in following or count > pairs[block, following[block]]):
                following[block] = after
        return cls(uses, following)

    def group(self, chain: Sequence[int]) -> tuple[int | None, int]:
        """The group of a request, named by the last block of its path, and how many blocks of it are shared."""
        shared = next((i for i in range(len(chain), 0, -1) if self.uses[chain[i - 1]] > 1), 0)
        if not shared:
            return None, 0
        block = chain[shared - 1]
        while block in self.next:
            block = self.next[block]
        return block, shared
