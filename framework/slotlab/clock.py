"""One clock per run: the wall's, or a virtual one that moves only when told to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from slotlab import signals


class Clock(Protocol):
    """Seconds since the run began."""

    def now(self) -> float:
        """The present."""
        ...

    def advance(self, durations: Sequence[float]) -> list[float]:
        """Steps of these durations were executed; when each of them ended."""
        ...

    def sleep_until(self, time: float) -> None:
        """Nothing happens before `time`."""
        ...


class VirtualClock:
    """Time passes as steps say it does."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        """The present."""
        return self.time

    def advance(self, durations: Sequence[float]) -> list[float]:
        """Let the steps' durations pass, one after the other."""
        ends = []
        for duration in durations:
            self.time += duration
            ends.append(self.time)
        return ends

    def sleep_until(self, time: float) -> None:
        """Jump to `time`."""
        self.time = max(self.time, time)


class WallClock:
    """Monotonic time since it was made."""

    NAP = 0.05  # seconds; short, so that a signal is answered at once

    def __init__(self) -> None:
        self.zero = time.perf_counter()

    def now(self) -> float:
        """The present."""
        return time.perf_counter() - self.zero

    def advance(self, durations: Sequence[float]) -> list[float]:
        """The step has just ended: a real engine runs one at a time."""
        assert len(durations) == 1, "a real engine cannot jump"
        return [self.now()]

    def sleep_until(self, time_: float) -> None:
        """Doze until `time_`."""
        while (rest := time_ - self.now()) > 0:
            signals.check()
            time.sleep(min(rest, self.NAP))
