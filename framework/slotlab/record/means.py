"""How well a mean is known from a few independent values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

T_975 = (12.706, 4.303, 3.182, 2.776)  # Student's t, 1 to 4 degrees of freedom


def half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % t-interval of the mean, as a share of the mean; infinite below two values.

    Zero for values that are all zero: there is nothing left to learn.
    """
    if len(values) < 2:
        return math.inf
    error = student(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return error / abs(mean) if (mean := fmean(values)) else (math.inf if error else 0.0)


def student(freedom: float) -> float:
    """97.5 % quantile of Student's t, to 0.3 % (from 5 degrees of freedom on: Abramowitz and Stegun 26.7.5)."""
    assert freedom >= 1, f"{freedom} degrees of freedom"
    if freedom < 5:
        return T_975[int(freedom) - 1]
    z = NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
