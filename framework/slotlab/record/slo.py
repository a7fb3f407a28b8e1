"""What a good answer is. (Kept apart from the metrics, for the configuration needs it at once and must start fast.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotlab.errors import require


@dataclass
class SLO:
    """Service-level objectives, in the clock's unit; one that is not set is met. A request is good when it meets them all."""

    ttft: float | None = None  # from the scheduled arrival to the first token
    tpot: float | None = None  # (last - first token) / (tokens - 1); not asked of answers of one token
    e2e: float | None = None  # from the scheduled arrival to the last token

    def __post_init__(self) -> None:
        for name, limit in vars(self).items():
            require(limit is None or limit > 0, name, limit, "greater than 0, or null")

    def met(self, latency: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Which requests finished within every limit."""
        good: NDArray[np.bool_] = ~np.isnan(latency["e2e"])
        for name, limit in vars(self).items():
            if limit is not None:
                good &= ~(latency[name] > limit)
        return good
