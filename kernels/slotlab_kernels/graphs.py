"""CUDA graphs of decode steps: all kernels of a step handed over in one call, instead of hundreds.

A graph replays the same kernels on the same memory, so there is one for each of a few sizes (those of vLLM, nano-vllm and
SGLang differ little), with buffers of its own that a step is copied into. A smaller batch runs in the next larger graph; its
padding has slot -1 and context 0, writes nothing and is read by nobody. The attention's grid depends on the number of splits,
too, which is that of the longest context a graph is for; the kernels read the true lengths on the device. A grid for very long
contexts is mostly programs with nothing to do, so each size has a graph for a few lengths.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from slotlab_kernels.batch import ROW_PARTS, TOKEN_PARTS, Batch, Row

PARTS = (*TOKEN_PARTS, *ROW_PARTS)
REASONS = {
    "prefill": "a row computes more than one token, or wants no logits",
    "rows": "more rows than the largest graph",
    "context": "a context longer than the graphs are for",
    "sampling": "a row is sampled, and the graphs are greedy",
    "probe": "somebody looks at the logits",
}
"""Why a step runs without a graph."""


def graph_sizes(max_rows: int) -> list[int]:
    """1, 2, 4, then every 8 to 64, every 16 to 256, every 32 to 512; none above `max_rows`, which is one of them up to 512.

    Never 0: an empty graph fails without a word (transformers#42699).
    """
    assert max_rows > 0, f"graphs for {max_rows} rows"
    largest = min(max_rows, 512)
    sizes = (1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, 513, 32))
    return sorted({size for size in sizes if size < largest} | {largest})


SHORT_CONTEXT, LONGER = 2048, 8


def graph_contexts(max_context: int) -> list[int]:
    """Longest contexts of the graphs of one size: 2048, then 8 times as many as before, the last `max_context`."""
    contexts, context = [max_context], SHORT_CONTEXT
    while context < max_context:
        contexts.append(context)
        context *= LONGER
    return sorted(contexts)


Key = tuple[int, int]
"""Which graph: its rows, its longest context."""


@dataclass(frozen=True)
class Capture:
    """What decode graphs are captured for: batches of up to `max_rows` requests with contexts of up to `max_context` tokens.

    `sampled`: rows may have a temperature. A greedy graph is a little shorter.
    """

    max_rows: int
    max_context: int
    sampled: bool = False


Work = Callable[[], torch.Tensor]


class Graphs(Protocol):
    """Who captures."""

    def capture(self, work: Work) -> Work:
        """Something that does this work again, on the same memory, and returns the same tensor, with what it holds then."""


class CudaGraphs:
    """Graphs of CUDA, in one pool of memory: they never run at the same time. Call it largest first."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, work: Work) -> Work:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work()  # compiles kernels and makes workspaces, which no capture may
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = work()

        def replay() -> torch.Tensor:
            graph.replay()
            return out

        return replay


Compute = Callable[[Batch, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of a batch, its `latest_T` and its `kept_R`: the tokens drawn [R]."""


class DecodeGraphs:
    """The graphs of a model runner, captured when it is built, and which of them a step runs in.

    `counts`: how many steps ran in a graph ("graph"), and how many did not, by REASONS.
    """

    @torch.inference_mode()
    def __init__(self, capture: Capture, backend: Graphs, compute: Compute, block_size: int, device: torch.device) -> None:
        self.capture = capture
        self.sizes, self.contexts = graph_sizes(capture.max_rows), graph_contexts(capture.max_context)
        self.counts: Counter[str] = Counter()
        self._block_size = block_size
        most = self.sizes[-1]
        self._fields = torch.zeros(len(PARTS), most, dtype=torch.int64, device=device)
        for name in ("slots_T", "latest_T", "kept_R"):
            self._fields[PARTS.index(name)] = -1
        self._tables_SB = torch.zeros(self.sizes[-1], self._width(capture.max_context), dtype=torch.int64, device=device)
        self._order_R = torch.arange(most, device=device)
        keys = [(size, context) for size in reversed(self.sizes) for context in reversed(self.contexts)]
        self._replays = {key: backend.capture(self._work(key, compute)) for key in keys}

    def choose(self, rows: Sequence[Row], padding: int, probed: bool) -> Key | None:
        """The graph for these rows and `padding` tokens, and one count; None if there is none for them."""
        longest = max(row.start for row in rows) + 1
        why = "probe" if probed else self._why_not(rows, padding, longest)
        self.counts[why or "graph"] += 1
        if why:
            return None
        return self.sizes[bisect_left(self.sizes, len(rows) + padding)], self.contexts[bisect_left(self.contexts, longest)]

    def replay(self, key: Key, sent: torch.Tensor, tables_SB: torch.Tensor) -> torch.Tensor:
        """The tokens drawn for the rows that were packed square to their graph's size; `sent` begins with their PARTS."""
        size = key[0]
        self._fields[:, :size] = sent[: len(PARTS) * size].view(len(PARTS), size)
        self._tables_SB[: tables_SB.shape[0], : tables_SB.shape[1]] = tables_SB
        return self._replays[key]()

    def _width(self, context: int) -> int:
        """Blocks of so many tokens."""
        return -(-context // self._block_size)

    def _why_not(self, rows: Sequence[Row], padding: int, longest: int) -> str | None:
        if any(len(row.ids) != 1 or row.sampling is None for row in rows):
            return "prefill"
        if len(rows) + padding > self.sizes[-1]:
            return "rows"
        if longest > self.capture.max_context:
            return "context"
        if not self.capture.sampled and any(row.sampling is not None and row.sampling.temperature > 0.0 for row in rows):
            return "sampling"
        return None

    def _work(self, key: Key, compute: Compute) -> Work:
        """The step of a graph on the buffers."""
        size, context = key
        part = {name: self._fields[index, :size] for index, name in enumerate(PARTS)}
        latest_T, kept_R = part.pop("latest_T"), part.pop("kept_R")
        shares = part.pop("shares_R").view(torch.float32).view(-1, 2)
        batch = Batch(
            **part,
            tables_SB=self._tables_SB[:size, : self._width(context)],
            logits_R=self._order_R[:size],
            temperature_R=shares[:, 0],
            top_p_R=shares[:, 1],
            logits_rows=list(range(size)),
            max_context=context,
            greedy=not self.capture.sampled,
        )
        return lambda: compute(batch, latest_T, kept_R)
