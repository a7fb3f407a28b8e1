"""Runs steps of rows on a model: packs, sends, computes, samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from slotlab_kernels.batch import Batch, Limits, Packed, Row, pack_rows, split
from slotlab_kernels.deterministic import make_deterministic
from slotlab_kernels.graphs import Capture, CudaGraphs, DecodeGraphs, Graphs, Key
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.llama import Llama
from slotlab_kernels.memory import check_cache, memory_errors
from slotlab_kernels.ops import Ops
from slotlab_kernels.staging import Event, Staging, Stream, TokenPool, stream_of

POOL = 1 << 16
"""Requests of which the device can keep a token at once."""


class Launched:
    """A step that was handed to the device."""

    def __init__(self, rows: int) -> None:
        self._tokens: list[int | None] = [None] * rows
        self._drawn: torch.Tensor | None = None
        self._wanting: list[int] = []
        self._done: Event | None = None

    def tokens(self) -> list[int | None]:
        """For each row the token drawn after its last one, None where no logits are wanted. Waits until the step is done."""
        if self._done is not None:
            self._done.wait()
            assert self._drawn is not None, "the step is done, and nothing was drawn"
            for index, token in zip(self._wanting, self._drawn.tolist(), strict=True):
                self._tokens[index] = token
            self._done = self._drawn = None
        return self._tokens


@dataclass
class Kept:
    """Blocks in host memory, once the device has got as far."""

    blocks: torch.Tensor | None = None


class ModelRunner:
    """One model, its KV cache and its ops. It computes what it is told and decides nothing.

    `probe`, where it is set, is called with (index of the row, its logits [V]) before a token is drawn from them.
    `capture`: run decode steps in graphs, which are captured here; `backend` captures them, by default CUDA's. `stream` is where
    the work is done, by default the device's. `deterministic`: see `make_deterministic`; without it a token's numbers on CUDA
    depend on how many tokens its step computes. OutOfMemory where the cache, the graphs or a step do not fit; after a step that
    did not, the runner can still be used.
    """

    def __init__(
        self,
        model: Llama,
        num_blocks: int,
        block_size: int,
        ops: Ops,
        capture: Capture | None = None,
        backend: Graphs | None = None,
        stream: Stream | None = None,
        deterministic: bool = False,
    ) -> None:
        device = model.device
        ops = make_deterministic(ops) if deterministic else ops
        self.model = model.packed(ops.pack)
        self.ops = ops
        self.limits = Limits(block_size, num_blocks, model.shape.vocab, model.shape.max_context)
        self.probe: Callable[[int, torch.Tensor], None] | None = None
        self.stream = stream or stream_of(device)
        self.graphs: DecodeGraphs | None = None
        self._staging, self._pool = Staging(device, self.stream), TokenPool(POOL, device)
        check_cache(model.shape, num_blocks, block_size, device, model.dtype)
        with memory_errors("the KV cache", device):
            self.cache = KVCache(model.shape, num_blocks, block_size, device, model.dtype, ops)
        if capture is not None:
            with memory_errors("capturing graphs", device):
                captures = backend or CudaGraphs()
                self.graphs = DecodeGraphs(capture, captures, self._compute, block_size, device)

    def launch(self, rows: Sequence[Row], padding: int = 0) -> Launched:
        """Hands one forward pass over all rows to the device; it may be called again before the tokens of this one are read.

        `padding`: tokens to compute besides and throw away.
        """
        launched = Launched(len(rows))
        if not rows:
            return launched
        key = self.graphs.choose(rows, padding, self.probe is not None) if self.graphs else None
        self._pool.admit(rows)
        square = key[0] if key else 0
        packed = pack_rows(rows, self.limits, padding, self._pool.places, square)
        launched._wanting = packed.logits_rows
        with memory_errors("a step", self.model.device):
            sent = self._staging.send(packed.parts)
            self.stream.run(lambda: self._run(packed, sent, key, launched))
            launched._done = self.stream.event()
        return launched

    def step(self, rows: Sequence[Row], padding: int = 0) -> list[int | None]:
        """`launch`, and the wait for its tokens."""
        return self.launch(rows, padding).tokens()

    def copy_out(self, blocks: Sequence[int]) -> Kept:
        """Takes these blocks to host memory, after all that was launched."""
        kept = Kept()
        self.stream.run(lambda: setattr(kept, "blocks", self.cache.copy_out(blocks)))
        return kept

    def copy_in(self, kept: Kept, blocks: Sequence[int]) -> None:
        """Writes what `copy_out` gave to these blocks, before anything that is launched later."""

        def write() -> None:
            assert kept.blocks is not None, "what is to be copied back was never copied out"
            self.cache.copy_in(kept.blocks, blocks)

        self.stream.run(write)

    def forget(self, request: int) -> None:
        """Drops the token that the device keeps for a request that has ended; steps that were launched are not disturbed."""
        self._pool.forget(request)

    def reset(self) -> None:
        """Empties the KV cache, and forgets all requests."""
        self._pool.clear()
        self.stream.run(self.cache.reset)

    @torch.inference_mode()
    def _run(self, packed: Packed, sent: torch.Tensor, key: Key | None, launched: Launched) -> None:
        parts = split(sent, packed.parts)
        if self.graphs and key:
            drawn_R = self.graphs.replay(key, sent, parts["tables_SB"])
        else:
            latest_T = parts["latest_T"] if packed.carries else None
            drawn_R = self._compute(Batch.of(packed, parts), latest_T, parts["kept_R"] if packed.keeps else None)
        launched._drawn = drawn_R[: len(packed.logits_rows)].to("cpu", non_blocking=True, copy=True)

    def _compute(self, batch: Batch, latest_T: torch.Tensor | None, kept_R: torch.Tensor | None) -> torch.Tensor:
        """The tokens drawn [R]. Ids that are LATEST are taken from the pool, and what is kept is left there."""
        if latest_T is not None:
            batch = replace(batch, ids_T=torch.where(latest_T >= 0, self._pool.tokens[latest_T], batch.ids_T))
        logits_RV = self.model.forward(batch, self.cache, self.ops)
        if self.probe is not None:
            for index, logits_V in zip(batch.logits_rows, logits_RV, strict=True):
                self.probe(index, logits_V)
        drawn_R = self._draw(logits_RV, batch)
        if kept_R is not None:
            self._pool.tokens[kept_R[: len(drawn_R)]] = drawn_R
        return drawn_R

    def _draw(self, logits_RV: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The tokens [R]; in the common case, all greedy, without noise."""
        if batch.greedy:
            return logits_RV.argmax(-1)
        return self.ops.sample(logits_RV, batch.temperature_R, batch.keys_R, batch.top_k_R, batch.top_p_R)
