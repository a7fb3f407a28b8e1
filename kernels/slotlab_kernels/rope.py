"""How far each pair of a head turns per position (RoPE: Su et al., 2021), and how checkpoints stretch that for long contexts.

The fields of a scaling have the names of its keys in a Hugging Face config. Plain numbers, without torch.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil, floor, inf, log, pi


class RopeScaling(ABC):
    """A stretching of the angles; ValueError where one of its numbers is not positive."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf):
                raise ValueError(f"{name} of the RoPE scaling must be a positive number, not {value!r}")

    @property
    def amplitude(self) -> float:
        """What cos and sin are multiplied by."""
        return 1.0

    @abstractmethod
    def divisors(self, theta: float, head_dim: int) -> list[float]:
        """By how much each pair of a head turns slower: `head_dim` / 2 numbers."""


def rope_periods(theta: float, head_dim: int, scaling: RopeScaling | None) -> list[float]:
    """Positions per radian of each pair of a head."""
    periods = _unscaled(theta, head_dim)
    divisors = scaling.divisors(theta, head_dim) if scaling else [1.0] * len(periods)
    return [period * divisor for period, divisor in zip(periods, divisors, strict=True)]


@dataclass(frozen=True)
class LinearRope(RopeScaling):
    """All pairs slower by `factor`: positions interpolated (Chen et al., 2023)."""

    factor: float

    def divisors(self, theta: float, head_dim: int) -> list[float]:
        return [self.factor] * (head_dim // 2)


@dataclass(frozen=True)
class Llama3Rope(RopeScaling):
    """Pairs that turn `high_freq_factor` times within the original context stay, those that turn `low_freq_factor` times
    slow down by `factor`, with a ramp between (Llama 3.1: Grattafiori et al., 2024)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(f"high_freq_factor ({self.high_freq_factor}) must exceed low_freq_factor ({self.low_freq_factor})")

    def divisors(self, theta: float, head_dim: int) -> list[float]:
        turns = [self.original_max_position_embeddings / (2 * pi * period) for period in _unscaled(theta, head_dim)]
        width = self.high_freq_factor - self.low_freq_factor
        return [_divisor((turn - self.low_freq_factor) / width, self.factor) for turn in turns]


@dataclass(frozen=True)
class YarnRope(RopeScaling):
    """A ramp over the pairs, from the one that turns `beta_fast` times within the original context to the one that turns
    `beta_slow` times; cos and sin are raised by `attention_factor` (Peng et al., YaRN, 2023)."""

    factor: float
    original_max_position_embeddings: int
    attention_factor: float | None = None
    beta_fast: float = 32
    beta_slow: float = 1

    @property
    def amplitude(self) -> float:
        return self.attention_factor or 0.1 * log(max(self.factor, 1.0)) + 1.0

    def divisors(self, theta: float, head_dim: int) -> list[float]:
        def pair(turns: float) -> float:
            """The pair that turns so many times, as a number between pairs."""
            return head_dim * log(self.original_max_position_embeddings / (2 * pi * turns)) / (2 * log(theta))

        low, high = max(floor(pair(self.beta_fast)), 0), min(ceil(pair(self.beta_slow)), head_dim - 1)
        width = max(high - low, 0.001)
        return [_divisor(1.0 - (i - low) / width, self.factor) for i in range(head_dim // 2)]


@dataclass(frozen=True)
class RopeFactors(RopeScaling):
    """A divisor for each pair, worked out already: the tensor `rope_freqs.weight` of GGUF files."""

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 < factor < inf for factor in self.factors):
            raise ValueError("the RoPE factors must be positive numbers")

    def divisors(self, theta: float, head_dim: int) -> list[float]:
        return list(self.factors)


def _unscaled(theta: float, head_dim: int) -> list[float]:
    return [theta ** (i / head_dim) for i in range(0, head_dim, 2)]


def _divisor(keep: float, factor: float) -> float:
    """Of a pair whose speed is `keep` parts (0 to 1, cut) the old one and else that divided by `factor`."""
    keep = min(max(keep, 0.0), 1.0)
    return 1.0 / ((1.0 - keep) / factor + keep)
