"""Tries a freshly compiled library in a process of its own, which may crash or hang: `python cpp_trial.py LIBRARY SYMBOL ...`.

Ends with 0 if every symbol is there and a small product is right, else with 1 and a line that says what is wrong. It imports
nothing of ours, so that it starts in no time.
"""

from __future__ import annotations

import ctypes
import os
import sys
from array import array

ROWS, OUTPUTS, INPUTS = 3, 5, 6
X = [row - at for row in range(ROWS) for at in range(INPUTS)]  # whole numbers: exact in every dtype
WEIGHT = [3 * output + at - 4 for output in range(OUTPUTS) for at in range(INPUTS)]
EXPECTED = [
    sum(X[row * INPUTS + at] * WEIGHT[output * INPUTS + at] for at in range(INPUTS))
    for row in range(ROWS)
    for output in range(OUTPUTS)
]


def stored(values: list[int], dtype: str) -> array[int]:
    """The units of 32 bits in which these numbers are read; two numbers to one in bf16, the upper half of an fp32."""
    bits = memoryview(array("f", values)).cast("B").cast("I").tolist()
    if dtype == "fp32":
        return array("I", bits)
    return array("I", [low >> 16 | high & 0xFFFF0000 for low, high in zip(bits[::2], bits[1::2], strict=True)])


def product(library: ctypes.CDLL, dtype: str) -> list[float]:
    """X times WEIGHT by the library, in fp32."""
    x, weight = stored(X, dtype), stored(WEIGHT, dtype)
    units = len(x) // ROWS
    packed, out = (
        array("I", [0] * library[f"packed_{dtype}"](OUTPUTS, units)),
        array("f", [0.0] * (ROWS * OUTPUTS)),
    )
    at = [ctypes.c_void_p(part.buffer_info()[0]) for part in (x, weight, packed, out)]
    long = ctypes.c_long
    library[f"pack_{dtype}"](at[1], at[2], long(OUTPUTS), long(units))
    library[f"linear_{dtype}"](at[0], long(units), at[2], None, at[3], long(ROWS), long(OUTPUTS), long(units), long(1))
    return out.tolist()


def main(path: str, *symbols: str) -> str | None:
    """What is wrong, in one line."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        return f"does not load: {str(error).removeprefix(path + ': ')}"
    if missing := [symbol for symbol in symbols if not hasattr(library, symbol)]:
        return f"has no {', '.join(missing)}"
    if refusal := library.prepare():
        return f"is refused what it needs by the system: {os.strerror(refusal)}"
    for dtype in ("fp32", "bf16"):
        if (found := product(library, dtype)) != EXPECTED:
            return f"computes {found} in {dtype}, where {EXPECTED} is right"
    return None


if __name__ == "__main__":
    wrong = main(*sys.argv[1:])
    print(wrong or "")
    sys.exit(1 if wrong else 0)
