"""Which kernels the Triton ops launch, and for which arguments: found out by calling the ops on tensors without memory.

So what is compiled ahead of time is what would run: the same constants, the same warps and the same alignments.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from slotlab_kernels.batch import Batch
from slotlab_kernels.ops import triton_ops as ops

DTYPE = torch.bfloat16
BLOCK_SIZE = 16
LAYERS, BLOCKS, ROWS, PROMPT, VOCAB = 4, 1024, 8, 64, 49152


@dataclass(frozen=True)
class Heads:
    """The sizes of a model that the kernels are compiled for."""

    heads: int
    kv_heads: int
    dim: int

    def __str__(self) -> str:
        return f"{self.heads}/{self.kv_heads} heads of {self.dim}"


SHAPES = (Heads(9, 3, 64), Heads(32, 8, 128), Heads(28, 4, 128), Heads(32, 32, 80), Heads(8, 1, 96))
"""SmolLM2-135M, Llama-3-8B, Qwen2-7B; then multi-head and multi-query attention of odd head dims."""
WIDTHS = (576, 4096)


@dataclass(frozen=True)
class Launch:
    """One kernel with all that decides how it is compiled."""

    kernel: str
    shape: str
    source: Any
    options: dict[str, int]


def launches(backend: str) -> list[Launch]:
    """Of every kernel, one launch for each shape on which its code depends; `backend` is cuda or hip."""
    with mock.patch.object(ops, "BACKEND", backend):
        return _launches()


def _launches() -> list[Launch]:
    found = [launch for shape in SHAPES for launch in _recorded(str(shape), partial(_call_attention, shape))]
    found += [launch for width in WIDTHS for launch in _recorded(f"{width} channels", partial(_call_rows, width))]
    with _deterministic():
        for shape in SHAPES:
            both = _recorded(f"{shape}, deterministic", partial(_call_attention, shape))
            found += [launch for launch in both if launch.kernel.startswith("attend")]
    return found + _recorded(f"{VOCAB} entries", _call_sample) + _recorded("8 heads of 128", _call_blocks)


@contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _recorded(shape: str, call: Callable[[], None]) -> list[Launch]:
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def record(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        calls.append((kernel, args, kwargs))

    with mock.patch.object(JITFunction, "run", record):
        call()
    return [_launch(kernel, shape, args, kwargs) for kernel, args, kwargs in calls]


def _launch(kernel: Any, shape: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Launch:
    options: dict[str, int] = {name: kwargs.pop(name) for name in ("num_warps", "num_stages") if name in kwargs}
    return Launch(kernel.__name__, shape, _source(kernel, args, kwargs), options)


def _source(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The kernel specialised as Triton does it at a launch: 1 is a constant, and it is noted what 16 divides."""
    names = [param.name for param in kernel.params]
    values = dict(zip(names, args, strict=False)) | kwargs
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[list[object]]] = {}
    for index, param in enumerate(kernel.params):
        value, free = values[param.name], not param.do_not_specialize
        if param.is_constexpr or (isinstance(value, int) and value == 1 and free):
            signature[param.name], constants[param.name] = "constexpr", value
            continue
        signature[param.name] = _type(value, param.annotation_type)
        if free and (isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0)):
            attributes[index,] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constants, attributes)


def _type(value: object, annotation: str) -> str:
    if isinstance(value, torch.Tensor):
        names = {torch.bfloat16: "bf16", torch.float32: "fp32", torch.int64: "i64"}
        return f"*{names[value.dtype]}"
    return annotation or ("fp32" if isinstance(value, float) else "i32")


def _empty(*size: int, dtype: torch.dtype = DTYPE) -> torch.Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def _ints(*size: int) -> torch.Tensor:
    return _empty(*size, dtype=torch.int64)


def _batch(tokens: int) -> Batch:
    ints, floats = _ints(tokens), _empty(ROWS, dtype=torch.float32)
    return Batch(
        ids_T=ints, positions_T=ints, slots_T=ints, context_T=ints, row_T=ints, tables_SB=_ints(ROWS, 128), logits_R=_ints(ROWS),
        keys_R=_ints(ROWS), top_k_R=_ints(ROWS), temperature_R=floats, top_p_R=floats,
        logits_rows=list(range(ROWS)), max_context=128 * BLOCK_SIZE, greedy=False,
    )  # fmt: skip


def _call_attention(shape: Heads) -> None:
    cache = _empty(2, BLOCKS, BLOCK_SIZE, shape.kv_heads, shape.dim)
    q, k, v = _qkv(PROMPT * ROWS, shape)
    angles = _empty(len(q), shape.dim // 2, dtype=torch.float32)
    ops.rope_store(q, k, v, angles, angles, cache, _ints(len(q)))
    ops.paged_attention(q, cache, _batch(len(q)))
    decoding, _, _ = _qkv(ROWS, shape)
    ops.paged_attention(decoding, cache, _batch(ROWS))


def _qkv(tokens: int, shape: Heads) -> tuple[torch.Tensor, ...]:
    qkv = _empty(tokens, shape.heads + 2 * shape.kv_heads, shape.dim)
    values = shape.heads + shape.kv_heads
    return qkv[:, : shape.heads], qkv[:, shape.heads : values], qkv[:, values:]


def _call_rows(width: int) -> None:
    x = _empty(ROWS, width)
    ops.rms_norm(x, _empty(width), 1e-5)
    ops.add_rms_norm(x, x, _empty(width), 1e-5)
    ops.silu_mul(_empty(ROWS, 2 * width))


def _call_sample() -> None:
    floats = _empty(ROWS, dtype=torch.float32)
    ops.sample(_empty(ROWS, VOCAB, dtype=torch.float32), floats, _ints(ROWS), _ints(ROWS), floats)


def _call_blocks() -> None:
    all = _empty(LAYERS, 2, BLOCKS, BLOCK_SIZE, 8, 128)
    ops.scatter_blocks(ops.gather_blocks(all, _ints(ROWS)), all, _ints(ROWS))
