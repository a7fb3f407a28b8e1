"""A device that works as late as it may, and graphs of a CPU: loaded by the tests beside it with `run_path`."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Work = Callable[[], torch.Tensor]


class DelayedStream:
    """Keeps all work in a queue and does it only when somebody waits for an event behind it. Host memory that is written to
    before it was copied, or a token that is overwritten before it was read, so gives wrong tokens."""

    def __init__(self) -> None:
        self.queue: deque[Callable[[], None]] = deque()
        self.given = self.done = 0

    def run(self, work: Callable[[], None]) -> None:
        self.queue.append(work)
        self.given += 1

    def event(self) -> "DelayedEvent":
        return DelayedEvent(self, self.given)


@dataclass
class DelayedEvent:
    """A place in the queue."""

    stream: DelayedStream
    place: int

    def wait(self) -> None:
        while self.stream.done < self.place:
            self.stream.queue.popleft()()
            self.stream.done += 1


@dataclass
class FakeGraphs:
    """Remembers the work and does it again on the same buffers; `captured` counts the tokens of each capture, in order."""

    captured: list[int] = field(default_factory=list)

    def capture(self, work: Work) -> Work:
        out = work().clone()
        self.captured.append(len(out))
        return lambda: out.copy_(work())
