"""ServeGen: what clients of a production service send, as laws per window of time."""

from __future__ import annotations

import ast
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slotlab import Streams, UserError, require
from slotlab.limits import MOST_REQUESTS, MOST_TOKENS
from slotlab.reading import is_file
from slotlab_plugins.workloads.traces.file import MOST, read, shown
from slotlab_plugins.workloads.traces.trace import Row, Trace

Floats = NDArray[np.float64]
LAWS = ("Gamma", "Weibull")
NO_DATASET = ValueError, SyntaxError, KeyError, TypeError, AttributeError, RecursionError, MemoryError, OSError
SHAPES = 0.01, 1e6  # below, most gaps are 0


@dataclass(frozen=True)
class Window:
    """A stretch of time: requests per second, and the law of the gaps between them."""

    number: int  # its row in the file
    start: float
    rate: float
    law: str
    shape: float

    def gap(self, rng: np.random.Generator) -> float:
        """A gap of mean 1."""
        if self.law == "Gamma":
            return rng.gamma(self.shape, 1 / self.shape)
        return float(rng.weibull(self.shape)) / math.gamma(1 + 1 / self.shape)


@dataclass(frozen=True)
class Pdf:
    """How often each token count occurs."""

    values: list[int]
    upto: Floats

    def draw(self, rng: np.random.Generator) -> int:
        """One token count."""
        return self.values[int(np.searchsorted(self.upto, rng.random() * self.upto[-1], side="right"))]


@dataclass
class ServeGen(Trace):
    """One client of ServeGen (Xiang et al. 2025): a file of windows (start, rate, cv, Gamma or Weibull, shape, scale; no
    header), and a `dataset` of the lengths' frequencies; null: the one that lies beside it.

    Requests are drawn: their number is random, and prompt and output are independent of each other. Gaps have the fitted
    shape at the measured rate; the fitted scale, whose mean misses that rate by up to a factor of 4, is not used.
    """

    dataset: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dataset = self.dataset or self.path.replace("-trace.csv", "-dataset.json")
        there = self.dataset != self.path and is_file(self.dataset)
        require(there, "dataset", self.dataset, "a file that is there")

    def origin(self, first: Row) -> float:
        return 0.0

    def rows(self, streams: Streams) -> Iterator[Row]:
        """A renewal process in a time that the rate bends: a gap that a window cuts goes on in the next."""
        windows, lengths = list(self.windows()), self.lengths()
        starts, prompts, outputs = list(lengths), streams("prompts"), streams("outputs")
        rng, rest = streams("arrivals"), None
        for window, end in zip(windows, ends(windows), strict=True):
            if end <= self.start or not window.rate:
                continue
            law = lengths[starts[max(bisect_right(starts, window.start) - 1, 0)]]
            if not all(pdf.values for pdf in law):
                raise self.file.refuse(window.number, f"rate={window.rate:g}, but {self.dataset} has no lengths for it")
            done, work = 0.0, (end - window.start) * window.rate
            if work > MOST_REQUESTS:
                raise self.file.refuse(window.number, f"rate={window.rate:g}: {work:g} requests, must be at most {MOST_REQUESTS}")
            rest = window.gap(rng) if rest is None else rest
            while done + rest < work:
                done += rest
                rest = window.gap(rng)
                yield Row(window.number, window.start + done / window.rate, law[0].draw(prompts), law[1].draw(outputs))
            rest -= work - done

    def windows(self) -> Iterator[Window]:
        """The windows, in the order of time."""
        file, last = self.file, -math.inf
        for row, cells in file.cells():
            if len(cells) != 6:
                raise file.refuse(row, f"has {len(cells)} values: must be start, rate, cv, pattern, shape, scale")
            start, rate = file.number(row, "start", cells[0]), file.number(row, "rate", cells[1])
            if start <= last or rate < 0:
                raise file.refuse(row, f"start={shown(cells[0])}, rate={shown(cells[1])}: must be after {last:g}, and at least 0")
            last = start
            if rate and cells[3] not in LAWS:
                raise file.refuse(row, f"pattern={shown(cells[3])}: must be {' or '.join(LAWS)} where the rate is not 0")
            shape = file.number(row, "shape", cells[4]) if rate else 1.0
            if not SHAPES[0] <= shape <= SHAPES[1]:
                raise file.refuse(row, f"shape={cells[4]}: must be from {SHAPES[0]:g} to {SHAPES[1]:g}")
            yield Window(row, start, rate, cells[3], shape)

    def lengths(self) -> dict[float, tuple[Pdf, Pdf]]:
        """The laws of prompts and outputs, by the time from which on they hold."""
        assert self.dataset is not None, "set by __post_init__"
        try:
            found = json.loads(Path(self.dataset).read_text(encoding="utf-8-sig"))
            return {
                known(start): (pdf_of(laws["input_tokens"]), pdf_of(laws["output_tokens"]))
                for start, laws in sorted(found.items(), key=lambda item: known(item[0]))
            } or {0.0: (pdf_of({}), pdf_of({}))}
        except NO_DATASET as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:120]
            raise UserError(f"{self.dataset}: is no ServeGen dataset ({what})") from None

    def facts(self) -> Mapping[str, str]:
        return {**super().facts(), "times": "drawn from the windows' laws", "lengths": "prompt and output drawn independently"}


def ends(windows: list[Window]) -> list[float]:
    """Where each window ends: at the next one's start; the last is as long as the one before."""
    starts = [window.start for window in windows]
    return [*starts[1:], 2 * starts[-1] - starts[-2] if len(starts) > 1 else starts[-1] + 600.0]


def pdf_of(law: Any) -> Pdf:
    """From `{tokens: frequency}`, or its text, as the published files have it: read as a literal, never executed."""
    table = ast.literal_eval(law) if isinstance(law, str) else law
    pairs = sorted((known(tokens, MOST_TOKENS), known(frequency)) for tokens, frequency in table.items())
    if any(tokens != int(tokens) for tokens, _ in pairs) or (pairs and not any(frequency for _, frequency in pairs)):
        raise ValueError("must be frequencies of whole numbers of tokens, not all 0")
    return Pdf([int(tokens) for tokens, _ in pairs], np.cumsum([frequency for _, frequency in pairs]))


def known(value: Any, most: float = MOST) -> float:
    """A number of the dataset; ValueError if it is none from 0 to `most`."""
    number = read(value)
    if number is None or not 0 <= number <= most:
        raise ValueError(f"{shown(value)} is no number from 0 to {most:g}")
    return float(number)
