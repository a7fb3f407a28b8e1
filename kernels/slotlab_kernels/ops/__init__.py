"""The ops of the forward pass, and the choice of an implementation for each: made once, at start, and recorded.

An implementation is a module with a function per op that it has. `torch` has them all and runs anywhere; it is the
reference. `cpp` and `numba` are for the CPU: the first is faster and wants a compiler. `triton` is for CUDA. `cpp` stands for the
best of its paths here, which has a name of its own, as in `cpp (avx2)`.
Shape suffixes: T tokens, N query heads, Hk key heads, D head dim, C channels of a norm, F intermediate, L layers, NB blocks of
BS tokens, R rows of logits, V vocabulary. Tensors may be views with any strides but for the last dim, which is dense.
"""

import importlib
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops import cpp_paths
from slotlab_kernels.ops.cpp_ops import CppOps


class Pack(Protocol):
    def __call__(self, weight: torch.Tensor) -> torch.Tensor:
        """A weight [N, K] in the order in which the `linear` of the same implementation reads it; its shape is still [N, K]."""


class Linear(Protocol):
    def __call__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False
    ) -> torch.Tensor:
        """x [T, K] times the transposed packed weight [N, K], plus bias [N]: [T, N]; in fp32 if `wide`.

        On a CPU a row's result does not depend on the other rows, on how many there are, nor on its place among them.
        """


class RopeStore(Protocol):
    def __call__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:  # fmt: skip
        """Turns q [T, N, D] in place, and writes the turned k, and v [T, Hk, D], to one layer's cache [2, NB, BS, Hk, D].

        The pairs (i, i + D/2) are turned by the angles of cos, sin [T, D/2] (Su et al., 2021), in fp32 inside. The place of a
        token is its slot, `slots` [T]; slot -1 writes nothing. What is left in k is not defined.
        """


class PagedAttention(Protocol):
    def __call__(self, q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
        """Attention of each query q [T, N, D] to the first `batch.context_T` tokens of its row: [T, N, D].

        Query head n reads key head n // (N / Hk). Context 0 gives zeros. `window` > 0: only the last so many tokens of the
        context are attended to, the query's own among them (Jiang et al., 2023). Nothing outside the context is used, so the
        result for a token depends on its query, its context and the block size, and not on the rest of the batch.
        """


class RMSNorm(Protocol):
    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """x / sqrt(mean(x^2) + eps) * weight over the last dim of [T, C] or [T, H, C], in fp32 inside.

        Zhang & Sennrich, 2019.
        """


class AddRMSNorm(Protocol):
    def __call__(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Adds x to the residual [T, C] in place, rounded to its dtype; the norm (see RMSNorm) of the sum: [T, C]."""


class SiluMul(Protocol):
    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up of [T, 2F], gate first: [T, F] (Shazeer, 2020), in fp32 inside."""


class Sample(Protocol):
    def __call__(
        self, logits: torch.Tensor, temperature: torch.Tensor, keys: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
    ) -> torch.Tensor:
        """One token [R] from each row of fp32 logits [R, V]: argmax of logits + temperature * Gumbel noise of (key, entry).

        Drawn among the first `top_k` entries [R] (0: all) in falling order, and of those among the shortest head of the list
        that has at least the probability `top_p` [R] (1: all) of them (Holtzman et al., 2020). Of equals the lower entry
        comes first. NaN is the least of all; a row of nothing else gives entry 0.
        """


class GatherBlocks(Protocol):
    def __call__(self, all: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        """A copy of some blocks [n] of a whole cache [L, 2, NB, BS, Hk, D] on its device: [L, 2, n, BS, Hk, D]."""


class ScatterBlocks(Protocol):
    def __call__(self, kept: torch.Tensor, all: torch.Tensor, blocks: torch.Tensor) -> None:
        """Writes what `gather_blocks` gave to these blocks [n] of a whole cache, in their order."""


@dataclass(frozen=True)
class Ops:
    """One implementation of each op, and in `names` which one it is.

    `remarks`: on implementations for this device: why one cannot run here, or what was wrong before it could.
    """

    linear: Linear
    pack: Pack
    rope_store: RopeStore
    paged_attention: PagedAttention
    rms_norm: RMSNorm
    add_rms_norm: AddRMSNorm
    silu_mul: SiluMul
    sample: Sample
    gather_blocks: GatherBlocks
    scatter_blocks: ScatterBlocks
    names: dict[str, str]
    remarks: dict[str, str]


OPS = (
    "linear", "rope_store", "paged_attention", "rms_norm", "add_rms_norm", "silu_mul", "sample", "gather_blocks",
    "scatter_blocks",
)  # fmt: skip
IMPLEMENTATIONS: dict[str, tuple[str, ...]] = {"cpp": ("cpu",), "numba": ("cpu",), "triton": ("cuda",), "torch": ("cpu", "cuda")}
"""The kinds of device that each one runs on; of those that can run here, the first that has an op is chosen for it."""


def choose_ops(device: torch.device, prefer: Mapping[str, str] | None = None) -> Ops:
    """The best implementation of each op on this device, or the one that `prefer` names for it.

    ValueError if `prefer` names an op or implementation that is unknown, or one that cannot run here.
    """
    prefer = prefer or {}
    for op, name in prefer.items():
        _check(op, name, device)
    here = [name for name in IMPLEMENTATIONS if _why_not(name, device) is None]
    names = {op: prefer.get(op) or next(name for name in here if hasattr(_module(name), op)) for op in OPS}
    return Ops(
        **{op: getattr(_module(name), op) for op, name in names.items()},
        pack=_module(names["linear"]).pack,
        names={op: _path(name) for op, name in names.items()},
        remarks=_remarks(device),
    )


def prefer_all(name: str) -> dict[str, str]:
    """A preference for one implementation, and for torch where that lacks an op."""
    return {op: name if hasattr(_module(name), op) else "torch" for op in OPS}


def _check(op: str, name: str, device: torch.device) -> None:
    if op not in OPS:
        raise ValueError(f"op {op!r} is unknown; allowed: {', '.join(OPS)}")
    if _family(name) not in IMPLEMENTATIONS:
        raise ValueError(f"op {op}: implementation {name!r} is unknown; allowed: {', '.join(IMPLEMENTATIONS)}")
    if why := _why_not(name, device):
        raise ValueError(f"op {op}: implementation {name!r} cannot run here: {why}")
    if not hasattr(_module(name), op):
        raise ValueError(f"op {op}: implementation {name!r} does not have it")


def _why_not(name: str, device: torch.device) -> str | None:
    interpreted = name == "triton" and os.environ.get("TRITON_INTERPRET") == "1"  # slowly, on a CPU: for tests
    kinds = IMPLEMENTATIONS[_family(name)]
    if device.type not in kinds and not interpreted:
        return f"it is for {' or '.join(kinds)}, not {device.type}"
    if _family(name) == "cpp":
        return cpp_paths.why_not(name)
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    return None


def _remarks(device: torch.device) -> dict[str, str]:
    mine = [name for name, kinds in IMPLEMENTATIONS.items() if device.type in kinds]
    missing = {name: f"cannot run here: {why}" for name in mine if name != "cpp" and (why := _why_not(name, device))}
    return (cpp_paths.best()[1] if "cpp" in mine else {}) | missing


def _family(name: str) -> str:
    """`cpp` for each of its paths; any other name is its own."""
    return "cpp" if name in cpp_paths.NAMES else name


def _path(name: str) -> str:
    """With the path that `cpp` stands for."""
    return cpp_paths.library(name).name if _family(name) == "cpp" else name


def _module(name: str) -> Any:
    if _family(name) == "cpp":
        return CppOps(cpp_paths.library(name))
    return importlib.import_module(f"slotlab_kernels.ops.{name}_ops")
