"""How a token is drawn: from the seed, the request and the position only, so that the batch cannot change it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


@dataclass(frozen=True)
class Sampling:
    """Greedy at temperature 0; else one draw from softmax(logits / temperature).

    `seed` and `request` name the random stream; the position of the drawn token is the place in it. Drawn among the `top_k`
    likeliest tokens (0: all), and of those among the fewest that have at least the probability `top_p` of them (1: all).
    """

    temperature: float = 0.0
    seed: int = 0
    request: int = 0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be at least 0 and finite, not {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0, not {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")


GREEDY = Sampling()


def stream_keys(samplings: Sequence[Sampling], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One 64-bit key per row; the noise of vocabulary entry v is a hash of (key, v).

    A counter-based generator in the sense of Salmon et al. (SC 2011) with the mixer of SplitMix64 (Steele et al.,
    OOPSLA 2014). Signed, because torch has few operations on unsigned numbers.
    """
    mask = 2**64 - 1
    key = np.array([s.seed & mask for s in samplings], np.uint64)
    request = np.array([s.request & mask for s in samplings], np.uint64)
    for part in (request, positions.astype(np.uint64)):
        key = _mix(_mix(key) + part)
    return _mix(key).view(np.int64)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The output function of SplitMix64; unsigned arithmetic of numpy arrays wraps around."""
    x = x + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
    return x ^ (x >> np.uint64(31))
