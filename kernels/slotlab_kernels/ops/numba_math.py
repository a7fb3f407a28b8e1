"""What numba lacks for these kernels: bf16, a vectorisable exp, and a typed `njit`.

numba knows no bf16, so a kernel gets such a tensor as uint16; `widen` and `narrow` convert, and leave fp32 as it is.
numba's cache on disk does not notice a change of what a kernel calls in another file: after an edit here delete it
(`ops/__pycache__/*.nb?`).
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Array = npt.NDArray[Any]

_F32, _I32, _I16 = ir.FloatType(), ir.IntType(32), ir.IntType(16)
_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts, the first short enough that n * part is exact (Cody & Waite, 1980)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LIMIT = np.float32(87.0)


def compiled(reorder_sums: bool = False, parallel: bool = False) -> Callable[[Function], Function]:
    """`numba.njit`, cached on disk. `reorder_sums` lets LLVM vectorise sums, in one fixed order per compiled loop."""
    fast = {"contract", "reassoc", "nsz"} if reorder_sums else {"contract"}
    return cast(
        Callable[[Function], Function],
        numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fast, parallel=parallel),
    )


def array(x: torch.Tensor) -> Array:
    """The memory of a CPU tensor for a kernel: fp32 and int64 as they are, bf16 as uint16."""
    assert x.dtype in (torch.float32, torch.bfloat16, torch.int64), f"the numba ops know no {x.dtype}"
    return (x.view(torch.uint16) if x.dtype is torch.bfloat16 else x).numpy()


def _widen(typing: Any, x: Any) -> Any:
    def bitcast(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if x == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], _I32), _I32(16)), _F32)

    return types.float32(x), bitcast


def _narrow(typing: Any, x: Any, like: Any) -> Any:
    def round_half_to_even(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if like == types.float32:
            return args[0]
        bits = builder.bitcast(args[0], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.trunc(builder.lshr(builder.add(bits, builder.add(odd, _I32(0x7FFF))), _I32(16)), _I16)
        is_nan = builder.fcmp_unordered("uno", args[0], args[0])
        return builder.select(is_nan, _I16(0x7FC0), rounded)

    return like(types.float32, like), round_half_to_even


def _power_of_two(typing: Any, n: Any) -> Any:
    def exponent_bits(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(builder.add(args[0], _I32(127)), _I32(23)), _F32)

    return types.float32(types.int32), exponent_bits


widen: Any = intrinsic(_widen)
"""widen(x): the fp32 of a stored number; a bf16 is the upper half of its fp32."""
narrow: Any = intrinsic(_narrow)
"""narrow(x, like): an fp32 in the stored form of `like`: rounded to the nearest bf16, ties to even."""
power_of_two: Any = intrinsic(_power_of_two)
"""power_of_two(n): 2^n in fp32 for an int32 n from -126 to 127."""


@compiled()
def exp(x: np.float32) -> np.float32:
    """e^x in fp32, 2e-7 relative, clamped to |x| <= 87; NaN stays NaN. libm's would keep loops from being vectorised."""
    x = -_LIMIT if x < -_LIMIT else x
    x = _LIMIT if x > _LIMIT else x
    n = np.float32(math.floor(x * _LOG2_E + np.float32(0.5)))
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    p = np.float32(1 / 5040)
    p = p * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    p = p * r + np.float32(1)
    p = p * r + np.float32(1)
    result: np.float32 = p * power_of_two(np.int32(n))
    return result
