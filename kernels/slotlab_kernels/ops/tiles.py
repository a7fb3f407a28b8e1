"""Matrix products of one fixed shape, so that no library can choose its arithmetic by the number of rows in a batch."""

import torch

from slotlab_kernels.ops import Linear


def in_tiles(multiply: Linear, rows: int) -> Linear:
    """`multiply`, which is given `rows` rows each time: the next ones of x in a buffer of their own, zeros after the last.

    By construction each product has one shape, one layout and the alignment of a fresh buffer. So a row's result cannot depend
    on how many others there are; it could on its place in the tile, if `multiply` computed a tile's last rows otherwise than
    its first. That it does not is trusted here, and tested when an engine opens (`slotlab_kernels.invariance`).
    """

    def multiply_tiles(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False
    ) -> torch.Tensor:
        out = x.new_empty(len(x), len(weight), dtype=torch.float32 if wide else x.dtype)
        for part, result in zip(torch.split(x, rows), torch.split(out, rows), strict=True):
            tile = x.new_zeros(rows, x.shape[1])
            tile[: len(part)] = part
            result.copy_(multiply(tile, weight, bias, wide)[: len(part)])
        return out

    return multiply_tiles
