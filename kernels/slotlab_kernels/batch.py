"""Packs the rows of one step: no padding between sequences, one pass of numpy, one copy to the device.

Shape suffixes here: T tokens (padded), S rows (sequences), B blocks per row, R rows that want logits (padded).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from slotlab_kernels.sampling import Sampling, stream_keys

ROW_PADDING = 8
"""Matrices are multiplied in multiples of so many rows: with fewer, BLAS picks other kernels, which round differently."""

Ints = npt.NDArray[np.int64]


@dataclass
class Row:
    """What one sequence computes in this step: `ids` at the positions from `start`, K and V into `blocks`.

    `blocks` holds the whole sequence, from position 0 to the last of `ids`, and may be longer.
    `sampling` None: no logits wanted, as after a chunk that is not the last.
    """

    ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    sampling: Sampling | None


@dataclass(frozen=True)
class Limits:
    """What the rows of a batch may name: the cache's blocks, the model's tokens and positions."""

    block_size: int
    num_blocks: int
    vocab: int
    max_context: int

    def check(self, ids: Ints, tables: Ints, slots: Ints, ends: Ints) -> None:
        """Past the limits a kernel would overwrite what belongs to others, and say nothing."""
        assert ids.min() >= 0 and ids.max() < self.vocab, f"a token id is not in 0..{self.vocab - 1}"
        assert ends.max() <= self.max_context, f"a row ends at {ends.max()}, past {self.max_context} positions"
        assert tables.min() >= 0 and tables.max() < self.num_blocks, f"a block is not in 0..{self.num_blocks - 1}"
        assert len(np.unique(slots)) == len(slots), "two tokens of one step would be written to the same slot"


@dataclass(frozen=True)
class Batch:
    """The packed rows, ready for the forward pass. Everything is int64 except `temperature_R`.

    A token attends to the first `context_T` tokens of row `row_T`, whose blocks are `tables_SB[row_T]` (0 where unused).
    Padding tokens have context 0 and slot -1: nothing is read or written for them.
    """

    ids_T: torch.Tensor
    positions_T: torch.Tensor
    slots_T: torch.Tensor
    context_T: torch.Tensor
    row_T: torch.Tensor
    tables_SB: torch.Tensor
    logits_R: torch.Tensor
    keys_R: torch.Tensor
    temperature_R: torch.Tensor
    logits_rows: list[int]
    max_context: int
    greedy: bool

    @classmethod
    def pack(cls, rows: Sequence[Row], limits: Limits, device: torch.device, padding: int = 0) -> "Batch":
        """Packs at least one row; asserts that each has tokens, blocks for them, and nothing outside the limits.

        `padding`: at least so many padding tokens.
        """
        counts = np.fromiter((len(row.ids) for row in rows), np.int64, len(rows))
        starts = np.fromiter((row.start for row in rows), np.int64, len(rows))
        assert len(rows) and counts.min() > 0 and starts.min() >= 0, "a batch needs rows, and each row needs tokens"
        ends, first = starts + counts, np.cumsum(counts) - counts
        tables = _tables(rows, -(-ends // limits.block_size))
        row_of = np.repeat(np.arange(len(rows)), counts)
        positions = np.arange(len(row_of)) - (first - starts)[row_of]
        blocks, offsets = np.divmod(positions, limits.block_size)
        slots = tables[row_of, blocks] * limits.block_size + offsets
        ids = np.fromiter(chain.from_iterable(row.ids for row in rows), np.int64, len(row_of))
        limits.check(ids, tables, slots, ends)

        wanting = [index for index, row in enumerate(rows) if row.sampling is not None]
        samplings = [row.sampling for row in rows if row.sampling is not None]
        size = _padded(len(row_of) + padding)
        parts = {
            "ids_T": _pad(ids, size, 0),
            "positions_T": _pad(positions, size, 0),
            "slots_T": _pad(slots, size, -1),
            "context_T": _pad(positions + 1, size, 0),
            "row_T": _pad(row_of, size, 0),
            "tables_SB": tables,
            "logits_R": _pad((first + counts - 1)[wanting], _padded(len(wanting)), 0),
            "keys_R": stream_keys(samplings, ends[wanting]),
        }
        temperature = torch.tensor([s.temperature for s in samplings], dtype=torch.float32, device=device)
        return cls(
            **_to_device(parts, device),
            temperature_R=temperature,
            logits_rows=wanting,
            max_context=int(ends.max()),
            greedy=all(s.temperature == 0.0 for s in samplings),
        )


def _padded(count: int) -> int:
    return -(-count // ROW_PADDING) * ROW_PADDING


def _pad(values: Ints, size: int, value: int) -> Ints:
    out = np.full(size, value, np.int64)
    out[: len(values)] = values
    return out


def _tables(rows: Sequence[Row], needed: Ints) -> Ints:
    """Block tables [S, B], cut to the blocks that this step needs and filled up with 0."""
    for index, (row, need) in enumerate(zip(rows, needed, strict=True)):
        assert len(row.blocks) >= need, f"row {index} needs {need} blocks and has {len(row.blocks)}"
    width = int(needed.max())
    tables = np.zeros((len(rows), width), np.int64)
    used = chain.from_iterable(row.blocks[:need] for row, need in zip(rows, needed, strict=True))
    tables[np.arange(width) < needed[:, None]] = np.fromiter(used, np.int64, int(needed.sum()))
    return tables


def _to_device(parts: dict[str, Ints], device: torch.device) -> dict[str, torch.Tensor]:
    """All parts in one buffer and so in one copy; on a CPU the buffer itself."""
    flat = torch.from_numpy(np.concatenate([part.ravel() for part in parts.values()])).to(device)
    ends = np.cumsum([part.size for part in parts.values()]).tolist()
    return {name: flat[end - part.size : end].view(part.shape) for (name, part), end in zip(parts.items(), ends, strict=True)}
