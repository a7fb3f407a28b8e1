"""The cases that run in Triton's interpreter, by name, and what they share."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

CASES: dict[str, Callable[[], None]] = {}
CPU = torch.device("cpu")
# of float64 references; the interpreter cuts what it narrows to bf16, where a GPU rounds
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

MAP_NORESERVE = 0x4000  # of Linux; Python 3.11 has no name for it

Case = Callable[..., None]


def case(*arguments: object) -> Callable[[Case], Case]:
    """Notes a case with these arguments; may be stacked."""

    def note(function: Case) -> Case:
        name = "-".join([function.__name__, *(str(argument).replace(" ", "") for argument in arguments)])
        assert name not in CASES, f"two cases are called {name}"
        CASES[name] = partial(function, *arguments)
        return function

    return note


def randn(*size: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_close(got: torch.Tensor, expected: torch.Tensor) -> None:
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), expected.double(), rtol=tolerance, atol=tolerance)


def far_apart(size: tuple[int, ...], first_stride: int) -> torch.Tensor:
    """fp16 zeros whose first dim has this stride: over memory that is only taken where it is written."""
    rest = torch.empty(size[1:]).stride()
    elements = first_stride * (size[0] - 1) + size[1] * rest[0]
    pages = mmap.mmap(-1, 2 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    return torch.from_numpy(np.frombuffer(pages, np.float16)).as_strided(size, (first_stride, *rest))
