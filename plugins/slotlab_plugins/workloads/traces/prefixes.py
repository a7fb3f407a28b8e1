"""Shared beginnings of prompts, from the block hashes of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ROOT = -1  # stands before the first block of every prompt


@dataclass(frozen=True)
class Prefixes:
    """Groups of requests whose prompts begin alike.

    Prompts form a tree of blocks, whose nodes are numbered in the order of the file, whatever the hashes are. A group is one
    path in it: from the root on, at each branch to the block that most requests have. A request is in the group with
    which it shares most, for as many blocks as anybody else has too. Sharing along less used branches is lost: of the
    36.6 % of the prompt blocks of Mooncake's conversation trace that an earlier request had, 35.3 % are kept.
    """

    block: int  # tokens per hash
    nodes: dict[tuple[int, int], int]  # by the node before it and its own hash
    uses: list[int]  # requests, by node
    ends: list[int]  # of each node's path

    @classmethod
    def of(cls, chains: Iterable[Sequence[int]], block: int) -> Prefixes:
        """From the hashes of all prompts, of `block` tokens each."""
        nodes, uses = dict[tuple[int, int], int](), list[int]()
        for chain in chains:
            node = ROOT
            for hash in chain:
                node = nodes.setdefault((node, hash), len(nodes))
                if node == len(uses):
                    uses.append(0)
                uses[node] += 1
        following: dict[int, int] = {}
        for (before, _), node in nodes.items():
            if uses[node] > 1 and (before not in following or uses[node] > uses[following[before]]):
                following[before] = node
        ends = list(range(len(nodes)))
        for node in reversed(range(len(ends))):  # a node has a lower number than those behind it
            ends[node] = ends[following.get(node, node)]
        return cls(block, nodes, uses, ends)

    def share(self, chain: Sequence[int], tokens: int) -> tuple[int | None, int]:
        """The group of a prompt of `tokens` tokens and how many of them are shared; never the last, which is to be computed."""
        shared, count, node = ROOT, 0, ROOT
        for i, hash in enumerate(chain, 1):
            node = self.nodes[node, hash]
            if self.uses[node] < 2:
                break
            shared, count = node, i
        count = min(count * self.block, tokens - 1)
        return (self.ends[shared], count) if count > 0 else (None, 0)
