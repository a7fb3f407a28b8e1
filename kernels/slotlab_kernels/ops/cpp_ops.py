"""The ops on the CPU in C++ (`cpp/`): the same arithmetic for a row wherever it stands in the batch, at any number of threads.

Its matrix product beats torch's at any number of rows, since its weights are packed once, and sums in one order for any
number of rows, so that rows need no padding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops.cpp_build import Library

_TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
_POINTER, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
_SIGNATURES: dict[str, Sequence[type[ctypes._SimpleCData[Any]]]] = {
    "linear": (_POINTER, _LONG, _POINTER, _POINTER, _POINTER, _LONG, _LONG, _LONG, _LONG),
    "rms_norm": (_POINTER, _LONG, _LONG, _POINTER, _FLOAT, _POINTER, _LONG, _LONG, _LONG),
    "add_rms_norm": (_POINTER, _POINTER, _POINTER, _FLOAT, _POINTER, _LONG, _LONG),
    "rope_store": (*[_POINTER] * 9, *[_LONG] * 4),
    "silu_mul": (_POINTER, _POINTER, _LONG, _LONG),
    "paged_attention": (_POINTER,) * 8,
}


class CppOps:
    """The ops of one compiled library: of one path, with the packing of that path."""

    def __init__(self, library: Library) -> None:
        self._kernels = library.kernels
        self._typed: dict[tuple[str, torch.dtype], Callable[..., None]] = {}

    def _kernel(self, op: str, dtype: torch.dtype) -> Callable[..., None]:
        if (op, dtype) not in self._typed:
            assert dtype in _TYPES, f"the C++ ops know no {dtype}"
            kernel = self._kernels[f"{op}_{_TYPES[dtype]}"]
            kernel.argtypes, kernel.restype = _SIGNATURES[op], None
            self._typed[op, dtype] = kernel
        return self._typed[op, dtype]

    def pack(self, weight: torch.Tensor) -> torch.Tensor:
        """See Pack: panels of outputs, each by units of inputs; zeros fill it up."""
        rows, units = weight.shape[0], weight.shape[1] * weight.itemsize // 4
        assert units * 4 == weight.shape[1] * weight.itemsize, (
            f"the C++ ops need an even number of bf16 inputs, not {weight.shape[1]}"
        )
        weight, dtype = weight.contiguous(), _TYPES[weight.dtype]
        size, kernel = self._kernels[f"packed_{dtype}"], self._kernels[f"pack_{dtype}"]
        size.argtypes, size.restype, kernel.argtypes = (_LONG, _LONG), _LONG, (_POINTER, _POINTER, _LONG, _LONG)
        packed = torch.empty(size(rows, units) * 4 // weight.itemsize, dtype=weight.dtype)
        kernel(weight.data_ptr(), packed.data_ptr(), rows, units)
        return packed[: weight.numel()].view(weight.shape)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, wide: bool = False) -> torch.Tensor:
        """See Linear."""
        assert x.is_contiguous() and x.dtype == weight.dtype, "the C++ ops want dense rows in the dtype of the weights"
        rows, outputs = x.shape[0], weight.shape[0]
        units = x.shape[1] * x.itemsize // 4
        out = torch.empty(rows, outputs, dtype=torch.float32 if wide else x.dtype)
        start = 0 if bias is None else bias.data_ptr()
        self._kernel("linear", x.dtype)(
            x.data_ptr(), units, weight.data_ptr(), start, out.data_ptr(), rows, outputs, units, wide
        )  # fmt: skip
        return out

    def rope_store(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:  # fmt: skip
        """See RopeStore."""
        strides = (_LONG * 6)(*q.stride()[:2], *k.stride()[:2], *v.stride()[:2])
        keys, (tokens, heads, dim) = cache.data_ptr(), q.shape
        values = keys + cache.stride(0) * cache.itemsize
        self._kernel("rope_store", q.dtype)(
            q.data_ptr(), k.data_ptr(), v.data_ptr(), strides, cos.data_ptr(), sin.data_ptr(), keys, values, slots.data_ptr(),
            tokens, heads, k.shape[1], dim,
        )  # fmt: skip

    def paged_attention(self, q: torch.Tensor, cache: torch.Tensor, batch: Batch, window: int = 0) -> torch.Tensor:
        """See PagedAttention."""
        out = torch.empty(q.shape, dtype=q.dtype)
        keys, (_, _, block_size, kv_heads, _) = cache.data_ptr(), cache.shape
        values = keys + cache.stride(0) * cache.itemsize
        tokens, heads, dim = q.shape
        shape = (_LONG * 12)(
            tokens, heads, kv_heads, dim, block_size, *q.stride()[:2], *cache.stride()[1:4], batch.tables_SB.shape[1], window
        )  # fmt: skip
        self._kernel("paged_attention", q.dtype)(
            q.data_ptr(), keys, values, batch.tables_SB.data_ptr(), batch.row_T.data_ptr(), batch.context_T.data_ptr(),
            out.data_ptr(), shape,
        )  # fmt: skip
        return out

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See RMSNorm."""
        out = torch.empty(x.shape, dtype=x.dtype)
        heads, by_head = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
        self._kernel("rms_norm", x.dtype)(
            x.data_ptr(), x.stride(0), by_head, weight.data_ptr(), eps, out.data_ptr(), x.shape[0], heads, x.shape[-1]
        )  # fmt: skip
        return out

    def add_rms_norm(self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """See AddRMSNorm."""
        out = torch.empty(residual.shape, dtype=residual.dtype)
        self._kernel("add_rms_norm", x.dtype)(
            x.data_ptr(), residual.data_ptr(), weight.data_ptr(), eps, out.data_ptr(), *residual.shape
        )  # fmt: skip
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """See SiluMul."""
        tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(tokens, width, dtype=gate_up.dtype)
        self._kernel("silu_mul", gate_up.dtype)(gate_up.data_ptr(), out.data_ptr(), tokens, width)
        return out
