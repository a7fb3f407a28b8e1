"""A pool that keeps the blocks of those who left, for whoever begins with the same tokens."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from slotlab.core.blocks import BlockPool
from slotlab.request import ROOT, RequestState, RequestView

Content = Callable[[RequestView, int], Hashable]


class PrefixPool(BlockPool):
    """Blocks with reference counts, and an index of full ones by content (vLLM; RadixAttention, Zheng et al., NeurIPS 2024).

    `content(req, i)` is what fills block i of `req`, asked about full blocks of known tokens only: two requests answer alike if
    and only if the tokens are alike. The index is keyed by (number of the block before, content), compared in full, so a hit is
    never a matter of hashes. A block that nobody holds stays in the index until its room is needed; least recently used goes
    first, and of one request's blocks the last. A held block is pinned.
    """

    def __init__(self, num_blocks: int, block_size: int, content: Content) -> None:
        super().__init__(num_blocks, block_size)
        self.content = content
        self.version = 0  # of the index: the same version gives the same hits
        self._numbers = itertools.count(ROOT + 1)  # never used twice, so a block that was overwritten has no heirs
        self._index: dict[tuple[int, Hashable], int] = {}
        self._key: dict[int, tuple[int, Hashable]] = {}  # of each block in the index
        self._number: dict[int, int] = {}
        self._refs = [0] * num_blocks
        self._idle: dict[int, None] = {}  # in the index and held by nobody, least recently used first

    @property
    def available(self) -> int:
        """Blocks that nobody holds, those with content included."""
        return len(self.free) + len(self._idle)

    def hits(self, req: RequestView) -> Sequence[int]:
        """See `BlockPool.hits`."""
        assert isinstance(req, RequestState)
        if req.prefix_hits is None or req.prefix_hits[0] != self.version:
            req.prefix_hits = self.version, self._find(req)
        return req.prefix_hits[1]

    def _find(self, req: RequestState) -> list[int]:
        found, number = list[int](), ROOT
        for i in range((req.known - 1) // self.block_size):
            block = self._index.get((number, self.content(req, i)))
            if block is None:
                break
            found.append(block)
            number = self._number[block]
        return found

    def alike(self, a: RequestView, b: RequestView) -> int:
        """See `BlockPool.alike`."""
        full = (min(a.prompt_tokens, b.prompt_tokens) - 1) // self.block_size
        same = itertools.takewhile(lambda i: self.content(a, i) == self.content(b, i), range(full))
        return self.block_size * sum(1 for _ in same)

    def in_common(self, reqs: Iterable[RequestState]) -> Iterator[int]:
        """See `BlockPool.in_common`."""
        seen = set[int]()
        for req in reqs:
            blocks, before = req.blocks or self.found(req)[0], len(seen)
            seen.update(blocks)
            yield len(blocks) - (len(seen) - before)

    def takes(self, req: RequestState, num_tokens: int, hits: Sequence[int] = ()) -> int:
        """See `BlockPool.takes`. Blocks to share are taken too where they are idle."""
        held = sum(1 for block in hits if self._refs[block])
        return self.blocks_for(num_tokens) - len(req.blocks) - held

    def grow(self, req: RequestState, num_tokens: int, hits: Sequence[int] = ()) -> bool:
        """See `BlockPool.grow`. The blocks to share come first."""
        assert not (hits and req.blocks), f"request {req.id} would share a prefix behind blocks of its own"
        if self.shortage(req, num_tokens, hits) > 0:
            return False
        for block in hits:
            self._idle.pop(block, None)
            self._refs[block] += 1
        if hits:
            req.blocks += hits
            req.sealed, req.last_sealed = len(hits), self._number[hits[-1]]
        for _ in range(self.blocks_for(num_tokens) - len(req.blocks)):
            block = self.free.pop() if self.free else self._overwrite()
            self._refs[block] = 1
            req.blocks.append(block)
        req.capacity = len(req.blocks) * self.block_size
        return True

    def _overwrite(self) -> int:
        """The idle block that was used least recently, without its content."""
        block = next(iter(self._idle))
        del self._idle[block], self._index[self._key.pop(block)], self._number[block]
        self.version += 1
        return block

    def gain(self, victim: RequestState, taken: Counter[int], hits: Sequence[int]) -> int:
        """See `BlockPool.gain`. A block that others hold stays, and one that is to be shared comes free for nobody."""
        taken.update(victim.blocks)
        return sum(1 for block in victim.blocks if taken[block] == self._refs[block] and block not in hits)

    def seal(self, req: RequestState) -> None:
        """See `BlockPool.seal`. Where the same content is there already, the index keeps the block that it has."""
        for i in range(req.sealed, req.computed // self.block_size):
            key, block = (req.last_sealed, self.content(req, i)), req.blocks[i]
            if key not in self._index:
                self._index[key], self._key[block], self._number[block] = block, key, next(self._numbers)
                self.version += 1
            req.sealed, req.last_sealed = i + 1, self._number[self._index[key]]

    def release(self, req: RequestState) -> None:
        """See `BlockPool.release`."""
        self.seal(req)
        for block in reversed(req.blocks):
            self._refs[block] -= 1
            if not self._refs[block] and block in self._key:
                self._idle[block] = None
            elif not self._refs[block]:
                self.free.append(block)
        req.blocks.clear()
        req.capacity, req.sealed, req.last_sealed = 0, 0, ROOT

    def check(self, holders: Iterable[RequestState]) -> None:
        """See `BlockPool.check`; and nobody writes to what is shared."""
        holds = Counter(block for req in holders for block in req.blocks)
        assert all(holds[block] == refs for block, refs in enumerate(self._refs)), "a block miscounts its holders"
        unheld = [*self.free, *self._idle]
        assert len(set(unheld)) == len(unheld) == self.num_blocks - len(holds), "a block is lost or owned twice"
        assert not any(self._refs[block] for block in unheld), "a held block is given away"
        assert {block: key for key, block in self._index.items()} == self._key and self._key.keys() == self._number.keys()
        assert self._idle.keys() <= self._key.keys() and not self._key.keys() & set(self.free), "a free block has content"
