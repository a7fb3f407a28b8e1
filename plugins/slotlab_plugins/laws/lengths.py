"""How long prompts and outputs are."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slotlab import UserError, require
from slotlab.limits import MOST_TOKENS
from slotlab.names import brief
from slotlab.reading import is_file

Ints = NDArray[np.int64]

LAWS = ("lognormal", "fixed", "uniform", "zipf", "quantiles")


@dataclass
class Lengths:
    """Token counts, rounded and clipped to `low` .. `high`.

    Laws: `lognormal` with this `mean` and `sigma` (of the logarithm); `fixed` at `mean`; `uniform` over `low` .. `high`;
    `zipf`, P(k) ~ k ** -`exponent` over `low` .. `high`; `quantiles`, geometric interpolation between these values at these
    `probabilities`, from 0 to 1 (empty: evenly spaced).
    After the share `shift_at` of the requests all lengths are `shift` times as long.
    """

    law: str = "lognormal"
    mean: float = 64.0
    sigma: float = 0.7
    low: int = 1
    high: int = 512
    exponent: float = 1.0
    quantiles: list[float] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    shift: float = 1.0
    shift_at: float = 0.5

    def __post_init__(self) -> None:
        require(self.law in LAWS, "law", self.law, f"one of {', '.join(LAWS)}")
        require(1 <= self.mean <= MOST_TOKENS, "mean", self.mean, f"at least 1 and at most {MOST_TOKENS}")
        require(0 <= self.sigma <= 20, "sigma", self.sigma, "at least 0 and at most 20")
        require(1 <= self.low <= self.high, "low", self.low, f"from 1 to high={self.high}")
        most = self.low + 10**6 if self.law == "zipf" else MOST_TOKENS  # zipf lists what it draws from
        require(self.high <= min(most, MOST_TOKENS), "high", self.high, f"at most {min(most, MOST_TOKENS)}")
        require(0 <= self.exponent <= 20, "exponent", self.exponent, "at least 0 and at most 20")
        require(0 < self.shift <= MOST_TOKENS, "shift", self.shift, f"greater than 0 and at most {MOST_TOKENS}")
        require(0 <= self.shift_at <= 1, "shift_at", self.shift_at, "from 0 to 1")
        if self.law == "quantiles":
            self._check_quantiles()

    def _check_quantiles(self) -> None:
        values, places = self.quantiles, self.probabilities
        rising = len(values) >= 2 and values[0] >= 1 and values == sorted(values) and values[-1] <= MOST_TOKENS
        require(rising, "quantiles", values, f"two or more rising numbers from 1 on, at most {MOST_TOKENS}")
        fits = len(places) == len(values) and (places[0], places[-1]) == (0, 1) and places == sorted(set(places))
        require(not places or fits, "probabilities", places, f"{len(values)} rising numbers from 0 to 1, one for each quantile")

    def draw(self, rng: np.random.Generator, n: int) -> list[int]:
        """`n` token counts."""
        values = self._values(rng, n)
        values[round(n * self.shift_at) :] *= self.shift
        return [int(value) for value in np.clip(np.rint(values), self.low, self.high)]

    def _values(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        if self.law == "fixed":
            return np.full(n, float(self.mean))
        if self.law == "lognormal":
            return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, n)
        u = rng.random(n)
        if self.law == "uniform":
            return np.asarray(np.floor(self.low + u * (self.high - self.low + 1)))
        if self.law == "zipf":
            sums = np.cumsum(np.arange(self.low, self.high + 1, dtype=float) ** -self.exponent)
            return np.asarray(np.searchsorted(sums, u * sums[-1], side="right") + float(self.low))
        places = self.probabilities or np.linspace(0.0, 1.0, len(self.quantiles))
        return np.asarray(np.exp(np.interp(u, places, np.log(self.quantiles))))


def read_pairs(path: str) -> tuple[Ints, Ints]:
    """The columns `prompt` and `output` of a CSV, by name. A row that is not two counts from 1 on is an error with its line."""
    file = Path(path)
    if not is_file(path):
        raise UserError(f"workload.pairs={brief(path)}: no such file")
    rows: list[tuple[int, int]] = []
    with file.open(newline="") as lines:
        reader = csv.DictReader(lines)
        if missing := {"prompt", "output"} - set(reader.fieldnames or ()):
            raise UserError(
                f"workload.pairs={path}: no column {' and '.join(sorted(missing))} in {reader.fieldnames or 'an empty file'}"
            )
        for row in reader:
            try:
                pair = int(row["prompt"]), int(row["output"])
            except (TypeError, ValueError):
                pair = 0, 0
            if min(pair) < 1:
                what = f"prompt={row['prompt']}, output={row['output']}"
                raise UserError(f"workload.pairs={path}: line {reader.line_num}: {what}: must be whole numbers from 1 on")
            rows.append(pair)
    if not rows:
        raise UserError(f"workload.pairs={path}: no rows below the header")
    table = np.array(rows, dtype=np.int64)
    return table[:, 0], table[:, 1]
