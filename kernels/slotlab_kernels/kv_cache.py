"""The paged KV cache (Kwon et al., SOSP 2023): one allocation for all layers."""

from collections.abc import Sequence

import torch

from slotlab_kernels.ops import Ops
from slotlab_kernels.shape import LlamaShape


def bytes_per_block(shape: LlamaShape, block_size: int, dtype: torch.dtype) -> int:
    """Memory of one block, K and V of all layers; known before anything is allocated."""
    return 2 * shape.layers * block_size * shape.kv_heads * shape.head_dim * dtype.itemsize


class KVCache:
    """K and V of `num_blocks` blocks of `block_size` tokens each.

    `all` is [L, 2, NB, BS, Hk, D]; `layers[l]` is its view [2, NB, BS, Hk, D], where 0 is K and 1 is V.
    """

    def __init__(
        self, shape: LlamaShape, num_blocks: int, block_size: int, device: torch.device, dtype: torch.dtype, ops: Ops
    ) -> None:
        assert num_blocks > 0 and block_size > 0, f"empty KV cache: {num_blocks} blocks of {block_size} tokens"
        self.num_blocks = num_blocks
        self.block_size = block_size
        size = (shape.layers, 2, num_blocks, block_size, shape.kv_heads, shape.head_dim)
        self.all = torch.zeros(size, device=device, dtype=dtype)
        self.layers = list(self.all.unbind(0))
        self._ops = ops

    def copy_out(self, blocks: Sequence[int]) -> torch.Tensor:
        """A copy of these blocks in host memory: [L, 2, len(blocks), BS, Hk, D]."""
        return self._ops.gather_blocks(self.all, self._index(blocks)).cpu()

    def copy_in(self, kept: torch.Tensor, blocks: Sequence[int]) -> None:
        """Writes what `copy_out` gave to these blocks, in their order."""
        assert kept.shape[2] == len(blocks), f"{kept.shape[2]} blocks were kept, {len(blocks)} are to be filled"
        self._ops.scatter_blocks(kept.to(self.all.device), self.all, self._index(blocks))

    def _index(self, blocks: Sequence[int]) -> torch.Tensor:
        return torch.tensor(blocks, device=self.all.device)

    def reset(self) -> None:
        """Forgets everything: a run after it cannot see what an earlier one wrote."""
        self.all.zero_()
