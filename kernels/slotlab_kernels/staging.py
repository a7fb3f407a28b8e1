"""What goes to the device in a step, and what stays there between steps.

A device works behind the host: what is handed to it has happened only when its event says so. So the host may write to a
buffer again only after the copy out of it has ended (mini-sglang#103, #67), and a token that it has not read yet is named by
its place in a pool on the device.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
import torch

from slotlab_kernels.batch import LATEST, Ints, Row

SETS = 2
"""Staging buffers in turn: the host fills one while the device may still read the other."""
FIRST_SIZE = 1 << 14


class Event(Protocol):
    """A moment in the work of a device."""

    def wait(self) -> None:
        """Returns when it has come."""


class Stream(Protocol):
    """Where work is done, one after the other in the order in which it was handed over."""

    def run(self, work: Callable[[], None]) -> None:
        """Hands work over. It may be done later."""

    def event(self) -> Event:
        """Comes when all that was handed over until now is done."""


class CpuStream:
    """Does everything at once, so that its events have always come."""

    def run(self, work: Callable[[], None]) -> None:
        work()

    def event(self) -> Event:
        return self

    def wait(self) -> None:
        pass


class CudaStream:
    """The current stream of a CUDA device: work hands kernels over when it is run, and they are done later."""

    def run(self, work: Callable[[], None]) -> None:
        work()

    def event(self) -> Event:
        return CudaEvent()


class CudaEvent:
    """A moment in the current stream."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()


def stream_of(device: torch.device) -> Stream:
    """The stream for a kind of device."""
    return CudaStream() if device.type == "cuda" else CpuStream()


class Staging:
    """Sends the parts of each step in one copy: from two sets of host memory in turn (pinned for CUDA) to one on the device.

    The device needs only one, because a copy there waits its turn behind the work that reads what was sent before.
    """

    def __init__(self, device: torch.device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._sets = [self._memory(FIRST_SIZE) for _ in range(SETS)]
        self._copied: list[Event | None] = [None] * SETS
        self._there = torch.empty(FIRST_SIZE, dtype=torch.int64, device=device)
        self._turn = 0

    def send(self, parts: Mapping[str, Ints]) -> torch.Tensor:
        """The parts, one after the other, as they will be on the device when the work that is handed over after this runs."""
        size, turn = sum(part.size for part in parts.values()), self._turn
        self._turn = (turn + 1) % SETS
        if (copied := self._copied[turn]) is not None:
            copied.wait()
        if size > len(self._sets[turn]):
            self._sets[turn] = self._memory(size)
        if size > len(self._there):
            self._there = torch.empty(1 << size.bit_length(), dtype=torch.int64, device=self._device)
        here, there = self._sets[turn][:size], self._there[:size]
        np.concatenate([part.ravel() for part in parts.values()], out=here.numpy())
        self._stream.run(lambda: _copy(here, there))
        self._copied[turn] = self._stream.event()
        return there

    def _memory(self, size: int) -> torch.Tensor:
        return torch.empty(1 << size.bit_length(), dtype=torch.int64, pin_memory=self._device.type == "cuda")


@torch.inference_mode()
def _copy(here: torch.Tensor, there: torch.Tensor) -> None:
    there.copy_(here, non_blocking=True)


class TokenPool:
    """The token drawn last for each request, on the device: `tokens` [capacity + 1], where the last is for those nobody keeps.

    `places` tells the place of a request. A place that is freed is given to others at once: the work that still reads or
    writes it for the one before was handed over earlier, so the device does it earlier.
    """

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.tokens = torch.zeros(capacity + 1, dtype=torch.int64, device=device)
        self.places: dict[int, int] = {}
        self._free = list(reversed(range(capacity)))

    def admit(self, rows: Iterable[Row]) -> None:
        """Gives a place to every request for which a token will be drawn; asserts that no LATEST is of one without."""
        for row in rows:
            if row.request is None or row.sampling is None or row.request in self.places:
                continue
            assert row.ids[-1] != LATEST, f"the device has no token of request {row.request}"
            assert self._free, f"{len(self.places)} requests have a token on the device: those that ended must be forgotten"
            self.places[row.request] = self._free.pop()

    def forget(self, request: int) -> None:
        """Frees the place of a request, if it has one."""
        if (place := self.places.pop(request, None)) is not None:
            self._free.append(place)

    def clear(self) -> None:
        """Frees all places."""
        self._free += self.places.values()
        self.places.clear()
