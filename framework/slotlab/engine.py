"""Engines execute plans and say how long that took; models are what they execute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from slotlab.clock import Clock
from slotlab.errors import UserError, require
from slotlab.limits import MOST_BLOCKS, MOST_TOKENS
from slotlab.plan import Plan, Result
from slotlab.request import RequestState, RequestView
from slotlab.streams import Streams
from slotlab.workload import Arrival


class Handle(Protocol):
    """A submitted step."""

    @property
    def forecast(self) -> Result | None:
        """What will come of it, its duration left open; then the next step may be planned, and submitted, while it runs.

        None: that depends on the tokens, so it is to be waited for.
        """
        ...

    def result(self) -> Result:
        """Wait for it."""
        ...


@dataclass(frozen=True)
class Done:
    """A step that was executed at once."""

    outcome: Result
    forecast: Result | None = None

    def result(self) -> Result:
        """What came of it."""
        return self.outcome


@dataclass
class Model:
    """What a real engine runs. A model's file is not opened before an engine asks for it."""

    def load(self, device: Any, dtype: Any) -> Any:
        """The model on a device, as the engine's own kind of object."""
        raise NotImplementedError

    def tokenizer(self) -> Any:
        """Turns words into token ids, as the engine's own kind of object. UserError if it has none."""
        raise UserError(f"workload: prompts in words need a tokenizer, and {type(self).__name__} has none; choose another model")

    def max_context(self) -> int:
        """Most tokens whose K and V it can attend to: prompt and output without the last, which is never fed back."""
        raise NotImplementedError

    def origin(self) -> str:
        """Where the weights come from, for the record; random ones say so."""
        raise NotImplementedError


@dataclass
class Engine:
    """Executes plans over a pool of `num_blocks` KV blocks of `block_size` tokens. It never chooses.

    `prefix_cache`: full blocks are kept after their request has left, for whoever begins with the same tokens.
    """

    device: str = "auto"
    block_size: int = 16
    num_blocks: int = 1024
    prefix_cache: bool = False

    real: ClassVar[bool] = False  # True: it needs a model, and its durations are wall time

    def __post_init__(self) -> None:
        require(self.device in ("auto", "cpu", "cuda"), "device", self.device, "auto, cpu or cuda")
        require(1 <= self.block_size <= MOST_TOKENS, "block_size", self.block_size, f"at least 1 and at most {MOST_TOKENS}")
        require(1 <= self.num_blocks <= MOST_BLOCKS, "num_blocks", self.num_blocks, f"from 1 to {MOST_BLOCKS}")

    @property
    def time_unit(self) -> str:
        """What the clock counts: `s`, or `step`."""
        return "s"

    def caps(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        """The largest step to come; told before `open`."""

    def open(self, model: Model) -> Mapping[str, str]:
        """Load, size the pool, warm up. Returns facts for the record: the device, which implementations run, the weights.

        A fact named `remark.KEY` changes the meaning of results: it is kept, shown and compared as such.
        """
        return {}

    def clock(self) -> Clock:
        """A new clock that starts at 0."""
        raise NotImplementedError

    def prepare(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        """The arrivals with the token counts of prompts that are words. By default none may be, and all lengths be known."""
        if any(arrival.text is not None or arrival.output_tokens is None for arrival in arrivals):
            raise UserError("workload: only engine=paged serves prompts in words and answers of unknown length")
        return arrivals

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        """Forget everything; request ids to come are indices into `arrivals`."""
        raise NotImplementedError

    def submit(self, plan: Plan) -> Handle:
        """Start to execute a plan: copy out, copy in, compute."""
        raise NotImplementedError

    def content(self, req: RequestView, block: int) -> Hashable:
        """What fills block `block` of `req`, a full one of known tokens; equal to another's if and only if the tokens are.

        Asked only with a prefix cache. By default there is none.
        """
        raise UserError(f"engine.prefix_cache: {type(self).__name__} cannot tell what its blocks hold; leave it off")

    def least_time(self, arrivals: Sequence[Arrival], slots: int, tokens: int) -> float | None:
        """A time below which no schedule can serve `arrivals` with so many slots, and tokens per step; None: not known."""
        return None

    def work(self) -> Mapping[str, float]:
        """What was done since `begin`, of a real engine that counts it.

        `flops`, `bytes`, `forward_s` (seconds in forward passes), and the device's `peak_flops` and `peak_bandwidth`.
        """
        return {}

    def left(self, req: RequestState) -> None:
        """`req` has left: what was kept for it can go."""

    def close(self) -> None:
        """Free everything."""
