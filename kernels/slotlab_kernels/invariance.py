"""Whether what a runner computes for a token depends on the rest of its step: tried on a few prompts, byte for byte."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY

LENGTHS = (1, 7, 13)
"""Of the prompts: more tokens than two tiles of 8. Each comes to another place among the rows of a product than it has alone."""


@dataclass(frozen=True)
class _Piece:
    """Tokens of a prompt that a step computes."""

    prompt: int
    start: int
    end: int


def batch_dependence(runner: ModelRunner) -> str | None:
    """How some prompts were computed when their logits, or their K and V, became other bytes than alone; None if never.

    As many prompts are tried as fit into the cache. Afterwards it is empty, and whatever compiles at first use has compiled.
    """
    trial = _Trial(runner)
    lengths = [len(ids) for ids in trial.ids]
    whole = [_Piece(prompt, 0, length) for prompt, length in enumerate(lengths)]
    cuts = [(0, length // 2, length - 1, length) for length in lengths]
    chunks = [[_Piece(prompt, cut[step], cut[step + 1]) for prompt, cut in enumerate(cuts)][::-1] for step in range(3)]
    alone = trial.computed([piece] for piece in whole)
    ways = {"in one step": [whole], "in chunks and decodes": chunks}
    different = [how for how, steps in ways.items() if trial.computed(steps) != alone]
    runner.reset()
    return " and ".join(different) or None


class _Trial:
    """Some prompts that fit into the cache of a runner, each in blocks of its own."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.ids: list[list[int]] = []
        self.blocks: list[list[int]] = []
        limits, free = runner.limits, iter(range(runner.limits.num_blocks))
        for length in LENGTHS:
            need, used = -(-length // limits.block_size), sum(map(len, self.blocks))
            if used + need <= limits.num_blocks and length <= limits.max_context:
                self.ids.append([(11 * i * i + 5 * i + length) % limits.vocab for i in range(length)])
                self.blocks.append([next(free) for _ in range(need)])

    def computed(self, steps: Iterable[list[_Piece]]) -> list[tuple[bytes, bytes]]:
        """Of each prompt the logits after its last token, and its K and V."""
        logits = [b""] * len(self.ids)
        for step in steps:
            pieces = [piece for piece in step if piece.start < piece.end]
            self._compute(pieces, logits)
        return list(zip(logits, self._kept(), strict=True))

    def _compute(self, pieces: list[_Piece], logits: list[bytes]) -> None:
        """One step; a prompt that it ends leaves its logits."""

        def look(row: int, logits_V: torch.Tensor) -> None:
            logits[pieces[row].prompt] = _bytes(logits_V)

        rows = [self._row(piece) for piece in pieces]
        self.runner.probe = look
        try:
            self.runner.step(rows)
        finally:
            self.runner.probe = None

    def _row(self, piece: _Piece) -> Row:
        ids = self.ids[piece.prompt]
        sampling = GREEDY if piece.end == len(ids) else None
        return Row(ids[piece.start : piece.end], piece.start, self.blocks[piece.prompt], sampling)

    def _kept(self) -> Iterator[bytes]:
        for ids, blocks in zip(self.ids, self.blocks, strict=True):
            kept = self.runner.copy_out(blocks)
            self.runner.stream.event().wait()
            assert kept.blocks is not None, "nothing was copied out"
            yield _bytes(kept.blocks.flatten(2, 3)[:, :, : len(ids)])


def _bytes(x: torch.Tensor) -> bytes:
    return x.contiguous().cpu().view(torch.uint8).numpy().tobytes()
