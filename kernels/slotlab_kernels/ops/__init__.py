"""The ops of the forward pass, and the choice of an implementation for each: made once, at start, and recorded.

An implementation is a module with a function per op that it has. `torch` has them all and runs anywhere; it is the
reference. `numba` is for the CPU. Shape suffixes: T tokens, N query heads, H heads of any kind, D head dim, C hidden,
F intermediate, R rows of logits, V vocabulary.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import torch

from slotlab_kernels.batch import Batch


class StoreKV(Protocol):
    def __call__(self, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
        """Writes k, v [T, Hk, D] to the slots [T] of one layer's cache [2, NB, BS, Hk, D]; slot -1 writes nothing."""


class PagedAttention(Protocol):
    def __call__(self, q: torch.Tensor, cache: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Attention of each query q [T, N, D] to the first `batch.context_T` tokens of its row: [T, N, D].

        Query head n reads key head n // (N / Hk). Context 0 gives zeros. Nothing outside the context is used, so the
        result for a token depends on its query, its context and the block size, and not on the rest of the batch.
        """


class RMSNorm(Protocol):
    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight over the last dim of [T, C] (Zhang & Sennrich, 2019), in fp32 inside."""


class Rope(Protocol):
    def __call__(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        """Turns the pairs (i, i + D/2) of x [T, H, D] in place by the angles of cos, sin [T, D/2] (Su et al., 2021)."""


class SiluMul(Protocol):
    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of [T, 2F], gate first: [T, F] (Shazeer, 2020), in fp32 inside."""


class Sample(Protocol):
    def __call__(self, logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """One token [R] from each row of logits [R, V]: argmax of logits + temperature * Gumbel noise of (key, entry)."""


@dataclass(frozen=True)
class Ops:
    """One implementation of each op, and in `names` which one it is."""

    store_kv: StoreKV
    paged_attention: PagedAttention
    rms_norm: RMSNorm
    rope: Rope
    silu_mul: SiluMul
    sample: Sample
    names: dict[str, str]


OPS = ("store_kv", "paged_attention", "rms_norm", "rope", "silu_mul", "sample")
IMPLEMENTATIONS: dict[str, tuple[str, ...]] = {"numba": ("cpu",), "torch": ("cpu", "cuda")}
"""The kinds of device that each one runs on; the first that can run is chosen."""


def choose_ops(device: torch.device, prefer: Mapping[str, str] | None = None) -> Ops:
    """The best implementation of each op on this device, or the one that `prefer` names for it.

    ValueError if `prefer` names an op or implementation that is unknown, or one that cannot run here.
    """
    prefer = prefer or {}
    for op, name in prefer.items():
        _check(op, name, device)
    here = [name for name in IMPLEMENTATIONS if _why_not(name, device) is None]
    names = {op: prefer.get(op, here[0]) for op in OPS}
    return Ops(**{op: getattr(_module(name), op) for op, name in names.items()}, names=names)


def _check(op: str, name: str, device: torch.device) -> None:
    if op not in OPS:
        raise ValueError(f"op {op!r} is unknown; allowed: {', '.join(OPS)}")
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"op {op}: implementation {name!r} is unknown; allowed: {', '.join(IMPLEMENTATIONS)}")
    if why := _why_not(name, device):
        raise ValueError(f"op {op}: implementation {name!r} cannot run here: {why}")


def _why_not(name: str, device: torch.device) -> str | None:
    if device.type not in IMPLEMENTATIONS[name]:
        return f"it is for {' or '.join(IMPLEMENTATIONS[name])}, not {device.type}"
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    return None


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"slotlab_kernels.ops.{name}_ops")
