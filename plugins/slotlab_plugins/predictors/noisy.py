"""The truth, with errors of a chosen size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

from slotlab import Predictor, Request, Streams, require
from slotlab.limits import MOST_SIGMA, MOST_TIMES


@dataclass
class Noisy(Predictor):
    """The true length times a log-normal factor, drawn for each request from `seed` and from what it is, not from its turn.

    Set either of two, the other to null. `error`: standard deviation of the factor, whose mean is 1, so that this is the
    relative error. `tau`: Kendall's rank correlation of estimate and truth, which is what counts for a policy that sorts (LTR,
    2024). It holds before rounding and clipping to 1 .. `max_tokens`, for lengths whose logarithms are normal with standard
    deviation `spread` (the `sigma` of a log-normal workload); it is within 0.02 for uniform ones from 100 to 500, and up to 0.08
    too low for uniform ones from 1.
    """

    error: float | None = 0.5
    tau: float | None = None
    spread: float = 0.7
    seed: int = 0

    oracle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        either = "null where error is set, and set where that is null (predictor=noisy_tau)"
        require((self.error is None) != (self.tau is None), "tau", self.tau, either)
        require(
            self.error is None or 0 <= self.error <= MOST_TIMES,
            "error",
            self.error,
            f"at least 0 and at most {MOST_TIMES:g}, or null",
        )
        require(self.tau is None or 0 < self.tau <= 1, "tau", self.tau, "above 0 and at most 1, or null")
        require(0 < self.spread <= MOST_SIGMA, "spread", self.spread, f"greater than 0 and at most {MOST_SIGMA}")
        self._streams = Streams(self.seed)

    def predict(self, req: Request, truth: int | None) -> int:
        assert truth is not None, "the workload does not know its output lengths"
        mean, sigma = self._factor()
        # lengths enter the name so that request 7 of another repeat errs anew
        bits = self._streams.number(f"noise/{req.id}/{req.prompt_tokens}/{truth}") >> 12
        noise = mean + sigma * NormalDist().inv_cdf((bits + 0.5) / 2**52)
        return round(math.exp(min(math.log(truth) + noise, math.log(req.max_tokens))))  # the cap also keeps exp finite

    def _factor(self) -> tuple[float, float]:
        """Mean and standard deviation of the factor's logarithm.

        Two normal variables of correlation rho have tau = 2 / pi * asin(rho) (Greiner), and a normal one plus noise has
        rho = spread / hypot(spread, noise).
        """
        if self.tau is not None:
            return 0.0, self.spread / math.tan(math.pi * self.tau / 2)
        assert self.error is not None, "checked when it was built"
        variance = math.log1p(self.error**2)
        return -variance / 2, math.sqrt(variance)


CHOICES = {"noisy": Noisy, "noisy_tau": Noisy(error=None, tau=0.6)}
