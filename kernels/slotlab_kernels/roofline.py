"""What a model's forward pass costs, and what a device can do at best: the two axes of a roofline.

Williams et al., Roofline: an insightful visual performance model, 2009.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter

import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.kv_cache import bytes_per_block
from slotlab_kernels.shape import LlamaShape

SECONDS = 0.15  # that each of the two measurements takes, about


@dataclass(frozen=True)
class Costs:
    """Floating point operations and bytes of one forward pass, by what they grow with.

    Matrix products and attention alone: norms, rotations and activations do less than 1 % of the work.
    """

    flops_per_token: int
    flops_per_logit: int  # of a token whose next one is wanted
    flops_per_pair: int  # of a token and one that it attends to
    bytes_per_step: int  # the weights
    bytes_per_kv: int  # K and V of one token, read or written


def costs(shape: LlamaShape, dtype: torch.dtype) -> Costs:
    """Of a model of this shape with weights and cache in `dtype`."""
    attention = shape.hidden * shape.head_dim * (shape.qkv_heads + shape.heads)
    weights = shape.layers * (attention + 3 * shape.hidden * shape.intermediate)
    head = shape.hidden * shape.vocab
    return Costs(
        flops_per_token=2 * weights,
        flops_per_logit=2 * head,
        flops_per_pair=4 * shape.layers * shape.heads * shape.head_dim,
        bytes_per_step=(weights + head) * dtype.itemsize,
        bytes_per_kv=bytes_per_block(shape, 1, dtype),
    )


@dataclass
class Work:
    """What forward passes did."""

    steps: int = 0
    tokens: int = 0
    logits: int = 0
    pairs: int = 0  # of a token and one that it attends to
    kv: int = 0  # tokens whose K and V were read or written
    seconds: float = 0.0

    def add(self, rows: Sequence[Row], seconds: float) -> None:
        """Count one pass. A row reads the K and V before and in it once, however many tokens it computes."""
        self.steps += 1
        self.seconds += seconds
        for row in rows:
            n = len(row.ids)
            self.tokens += n
            self.logits += row.sampling is not None
            self.pairs += n * row.start + n * (n + 1) // 2
            self.kv += row.start + 2 * n

    def flops(self, costs: Costs) -> int:
        """Floating point operations."""
        return costs.flops_per_token * self.tokens + costs.flops_per_logit * self.logits + costs.flops_per_pair * self.pairs

    def bytes(self, costs: Costs) -> int:
        """Bytes read and written."""
        return costs.bytes_per_step * self.steps + costs.bytes_per_kv * self.kv


@dataclass(frozen=True)
class Peaks:
    """The best that was measured on a device: floating point operations and bytes read, per second."""

    flops: float
    bandwidth: float

    def __str__(self) -> str:
        return f"{self.flops / 1e12:.3g} TFLOP/s, {self.bandwidth / 1e9:.3g} GB/s"


@cache
def measure_peaks(device: torch.device, dtype: torch.dtype) -> Peaks:
    """A large matrix product in `dtype`, and a reduction of an array larger than most caches; once per process."""
    cuda = device.type == "cuda"
    n = 8192 if cuda else 768
    a = torch.ones(n, n, device=device, dtype=dtype)
    array = torch.ones((1 << 28) if cuda else (1 << 26), device=device, dtype=torch.float32)

    flops = 2 * n**3 / _best(lambda: a @ a, device)
    return Peaks(flops, array.numel() * array.element_size() / _best(array.sum, device))


def _best(work: Callable[[], torch.Tensor], device: torch.device) -> float:
    """Seconds of the fastest of several runs; the first one, which may compile, does not count."""
    work()
    best, begin = float("inf"), perf_counter()
    while best == float("inf") or perf_counter() - begin < SECONDS:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, perf_counter() - start)
    return best
