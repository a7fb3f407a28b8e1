"""Engines execute plans and say how long that took; models are what they execute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slotlab.clock import Clock
from slotlab.errors import require
from slotlab.plan import Plan, Result
from slotlab.request import RequestState
from slotlab.streams import Streams
from slotlab.workload import Arrival


class Handle(Protocol):
    """A submitted step."""

    def result(self) -> Result:
        """Wait for it."""
        ...


@dataclass(frozen=True)
class Done:
    """A step that was executed at once."""

    outcome: Result

    def result(self) -> Result:
        """What came of it."""
        return self.outcome


@dataclass
class Model:
    """What a real engine runs. A model's file is not opened before an engine asks for it."""

    def load(self, device: Any, dtype: Any) -> Any:
        """The model on a device, as the engine's own kind of object."""
        raise NotImplementedError

    def max_context(self) -> int:
        """Most tokens whose K and V it can attend to: prompt and output without the last, which is never fed back."""
        raise NotImplementedError

    def origin(self) -> str:
        """Where the weights come from, for the record; random ones say so."""
        raise NotImplementedError


@dataclass
class Engine:
    """Executes plans over a pool of `num_blocks` KV blocks of `block_size` tokens. It never chooses."""

    device: str = "auto"
    block_size: int = 16
    num_blocks: int = 1024

    real: ClassVar[bool] = False  # True: it needs a model, and its durations are wall time

    def __post_init__(self) -> None:
        require(self.device in ("auto", "cpu", "cuda"), "device", self.device, "auto, cpu or cuda")
        require(self.block_size >= 1, "block_size", self.block_size, "at least 1")
        require(self.num_blocks >= 1, "num_blocks", self.num_blocks, "at least 1")

    @property
    def time_unit(self) -> str:
        """What the clock counts: `s`, or `step`."""
        return "s"

    def open(self, model: Model) -> Mapping[str, str]:
        """Load, size the pool, warm up. Returns facts for the record: the device, which implementations run, the weights."""
        return {}

    def clock(self) -> Clock:
        """A new clock that starts at 0."""
        raise NotImplementedError

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        """Forget everything; request ids to come are indices into `arrivals`."""
        raise NotImplementedError

    def submit(self, plan: Plan) -> Handle:
        """Start to execute a plan."""
        raise NotImplementedError

    def left(self, req: RequestState) -> None:
        """`req` has left: what was kept for it can go."""

    def close(self) -> None:
        """Free everything."""
