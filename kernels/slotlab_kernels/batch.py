"""Packs the rows of one step: no padding between sequences, one pass of numpy, one copy to the device.

Shape suffixes here: T tokens (with padding), S rows (sequences), B blocks per row, R rows that want logits (with padding).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from slotlab_kernels.sampling import Sampling, stream_keys

LATEST = -1
"""Stands for an id that only the device knows yet: the token that was drawn last for the request of its row."""

Ints = npt.NDArray[np.int64]


@dataclass
class Row:
    """What one sequence computes in this step: `ids` at the positions from `start`, K and V into `blocks`.

    `blocks` holds the whole sequence, from position 0 to the last of `ids`, and may be longer.
    `sampling` None: no logits wanted, as after a chunk that is not the last. `request` names who asked: the token that is drawn
    for it stays on the device too, and the last of `ids` may be LATEST in the row after. None: its tokens are not kept.
    """

    ids: Sequence[int]
    start: int
    blocks: Sequence[int]
    sampling: Sampling | None
    request: int | None = None


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
    """The packed rows, ready for the forward pass. Everything is int64 except `temperature_R` and `top_p_R`, fp32.

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
    top_k_R: torch.Tensor
    temperature_R: torch.Tensor
    top_p_R: torch.Tensor
    logits_rows: list[int]
    max_context: int
    greedy: bool

    @classmethod
    def pack(cls, rows: Sequence[Row], limits: Limits, device: torch.device, padding: int = 0) -> "Batch":
        """`pack_rows`, and the copy to the device."""
        packed = pack_rows(rows, limits, padding)
        flat = torch.from_numpy(np.concatenate([part.ravel() for part in packed.parts.values()]))
        return cls.of(packed, split(flat.to(device), packed.parts))

    @classmethod
    def of(cls, packed: "Packed", sent: Mapping[str, torch.Tensor]) -> "Batch":
        """Packed rows whose parts are on the device."""
        wanting = len(packed.logits_rows)
        shares = sent["shares_R"].view(torch.float32).view(-1, 2)
        return cls(
            **{name: sent[name] for name in ("ids_T", "positions_T", "slots_T", "context_T", "row_T", "tables_SB", "logits_R")},
            keys_R=sent["keys_R"][:wanting],
            top_k_R=sent["top_k_R"][:wanting],
            temperature_R=shares[:wanting, 0],
            top_p_R=shares[:wanting, 1],
            logits_rows=packed.logits_rows,
            max_context=packed.max_context,
            greedy=packed.greedy,
        )


TOKEN_PARTS = ("ids_T", "positions_T", "slots_T", "context_T", "row_T", "latest_T")
ROW_PARTS = ("kept_R", "keys_R", "top_k_R", "shares_R")
GREEDY_SHARES = int(np.array([0.0, 1.0], np.float32).view(np.int64)[0])
"""Temperature 0 and top_p 1 in the bits of one int64."""


@dataclass(frozen=True)
class Packed:
    """A batch in host memory. `parts` stand in the order TOKEN_PARTS, ROW_PARTS, logits_R, tables_SB.

    Besides what is in Batch: `latest_T`, the place of a LATEST id in the pool of tokens, -1 for the others; `kept_R`, the place
    there for what is drawn, -1 for nowhere; `shares_R`, temperature and top_p as two fp32 in the bits of one int64.
    """

    parts: dict[str, Ints]
    logits_rows: list[int]
    max_context: int
    greedy: bool

    @property
    def carries(self) -> bool:
        """Whether an id is LATEST."""
        return bool(self.parts["latest_T"].max() >= 0)

    @property
    def keeps(self) -> bool:
        """Whether what is drawn for a row is kept on the device."""
        return bool(self.parts["kept_R"].max(initial=-1) >= 0)


def pack_rows(
    rows: Sequence[Row], limits: Limits, padding: int = 0, places: Mapping[int, int] | None = None, square: int = 0
) -> Packed:
    """Packs at least one row; asserts that each has tokens, blocks for them, and nothing outside the limits.

    `padding`: so many padding tokens. `places`: of the requests in the pool of tokens. `square`: so many tokens, and so many rows
    that want logits, neither more nor less.
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
    latest = _take_latest(ids, rows, first + counts - 1, places or {})
    limits.check(ids, tables, slots, ends)

    wanting = [index for index, row in enumerate(rows) if row.sampling is not None]
    size, size_R = square or len(row_of) + padding, square or len(wanting)
    assert size >= len(row_of), f"{len(row_of)} tokens are more than {size}"
    parts = {
        "ids_T": _pad(ids, size, 0),
        "positions_T": _pad(positions, size, 0),
        "slots_T": _pad(slots, size, -1),
        "context_T": _pad(positions + 1, size, 0),
        "row_T": _pad(row_of, size, 0),
        "latest_T": _pad(latest, size, -1),
        **_row_parts([rows[index] for index in wanting], ends[wanting], size_R, places or {}),
        "logits_R": _pad((first + counts - 1)[wanting], size_R, 0),
        "tables_SB": tables,
    }
    greedy = all(row.sampling is None or row.sampling.temperature == 0.0 for row in rows)
    return Packed(parts, wanting, int(ends.max()), greedy)


def _row_parts(rows: Sequence[Row], ends: Ints, size: int, places: Mapping[int, int]) -> dict[str, Ints]:
    """ROW_PARTS of the rows that want logits. Where all are greedy, nobody reads how to sample."""
    kept = [-1 if row.request is None else places.get(row.request, -1) for row in rows]
    parts = {
        "kept_R": _pad(np.array(kept, np.int64), size, -1),
        "keys_R": np.zeros(size, np.int64),
        "top_k_R": np.zeros(size, np.int64),
        "shares_R": np.full(size, GREEDY_SHARES, np.int64),
    }
    samplings = [row.sampling for row in rows if row.sampling is not None]
    if any(s.temperature > 0.0 for s in samplings):
        parts["keys_R"][: len(rows)] = stream_keys(samplings, ends)
        parts["top_k_R"][: len(rows)] = [s.top_k for s in samplings]
        shares = np.array([(s.temperature, s.top_p) for s in samplings], np.float32)
        parts["shares_R"][: len(rows)] = shares.view(np.int64)[:, 0]
    return parts


def split(flat: torch.Tensor, parts: Mapping[str, Ints]) -> dict[str, torch.Tensor]:
    """The views of the parts in a tensor that holds one after the other."""
    ends = np.cumsum([part.size for part in parts.values()]).tolist()
    return {name: flat[end - part.size : end].view(part.shape) for (name, part), end in zip(parts.items(), ends, strict=True)}


def _take_latest(ids: Ints, rows: Sequence[Row], last: Ints, places: Mapping[int, int]) -> Ints:
    """The places [T] of the ids that are LATEST, which become 0; -1 for the others."""
    latest = np.full(len(ids), -1, np.int64)
    for index in np.flatnonzero(ids[last] == LATEST).tolist():
        request = rows[index].request
        assert request is not None and request in places, f"row {index}: the device has no token of request {request}"
        latest[last[index]], ids[last[index]] = places[request], 0
    return latest


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
