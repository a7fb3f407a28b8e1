"""Runs steps of rows on a model: packs, computes, samples."""

from collections.abc import Callable, Sequence

import torch

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import Ops


class ModelRunner:
    """One model, its KV cache and its ops. It computes what it is told and decides nothing.

    `probe`, where it is set, is called with (index of the row, its logits [V]) before a token is drawn from them.
    """

    def __init__(self, model: Llama, num_blocks: int, block_size: int, ops: Ops) -> None:
        self.model = model
        self.ops = ops
        self.cache = KVCache(model.shape, num_blocks, block_size, model.device, model.dtype)
        self.limits = Limits(block_size, num_blocks, model.shape.vocab, model.shape.max_context)
        self.probe: Callable[[int, torch.Tensor], None] | None = None

    @torch.inference_mode()
    def step(self, rows: Sequence[Row], padding: int = 0) -> list[int | None]:
        """One forward pass over all rows; for each the token drawn after its last one, None where no logits are wanted.

        `padding`: tokens to compute besides and throw away. On CUDA it waits for the device: when it returns, the step is done.
        """
        tokens: list[int | None] = [None] * len(rows)
        if not rows:
            return tokens
        batch = Batch.pack(rows, self.limits, self.model.device, padding)
        logits_RV = self.model.forward(batch, self.cache, self.ops)
        if self.probe is not None:
            for index, logits_V in zip(batch.logits_rows, logits_RV, strict=True):
                self.probe(index, logits_V)
        for index, token in zip(batch.logits_rows, self._draw(logits_RV, batch).tolist(), strict=True):
            tokens[index] = token
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)
        return tokens

    def reset(self) -> None:
        """Empties the KV cache."""
        self.cache.reset()

    def _draw(self, logits_RV: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The tokens [R]; in the common case, all greedy, without noise."""
        if batch.greedy:
            return logits_RV.argmax(-1)
        return self.ops.sample(logits_RV, batch.temperature_R, batch.keys_R)
