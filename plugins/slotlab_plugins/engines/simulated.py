"""An engine that only pretends, on a virtual clock."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from slotlab import Arrival, Done, Engine, Plan, RequestState, RequestView, Result, Streams, require
from slotlab.clock import VirtualClock
from slotlab.limits import STEP
from slotlab_plugins.prompts import Texts


@dataclass
class Simulated(Engine):
    """No model and no waiting: a step costs 1 (`unit`), or so much per step, token computed and cached token read (`linear`).

    Under `linear`, pads cost as any token does, and `per_swapped_block` is what copying a KV block to or from the host costs.
    Steps in which nothing can change are run in one jump, with the results of single steps, unless `jump` is off.
    """

    cost: str = "linear"
    per_step: float = 5e-3
    per_token: float = 2e-5
    per_context: float = 2e-8
    per_swapped_block: float = 3e-4
    jump: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.cost in ("unit", "linear"), "cost", self.cost, "unit or linear")
        for name in ("per_step", "per_token", "per_context", "per_swapped_block"):
            require(0 <= getattr(self, name) <= STEP[1], name, getattr(self, name), f"at least 0 and at most {STEP[1]:g}")
        require(
            self.cost == "unit" or self.per_step >= STEP[0],
            "per_step",
            self.per_step,
            f"at least {STEP[0]:g} under cost=linear",
        )
        self._lengths: list[int] = []
        self._texts = Texts([], self.block_size)

    @property
    def time_unit(self) -> str:
        return "step" if self.cost == "unit" else "s"

    def clock(self) -> VirtualClock:
        return VirtualClock()

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        self._lengths = [arrival.most_output for arrival in arrivals]
        self._texts = Texts(arrivals, self.block_size)

    def content(self, req: RequestView, block: int) -> Hashable:
        return self._texts.content(req.id, block)

    def left(self, req: RequestState) -> None:
        self._texts.lengths[req.id] = req.known

    def submit(self, plan: Plan) -> Done:
        """Run `plan.repeat` steps in one go, unless somebody ends before or a step would begin at `plan.until`."""
        items, lengths = plan.tokens, self._lengths
        to_go = [min(lengths[req.id], req.max_tokens) - req.emitted for req in items]
        durations = self._durations(plan, min(plan.repeat, *to_go) if self.jump and plan.repeat > 1 else 1)
        steps = len(durations)
        emitted = [steps if req.remaining == n else 0 for req, n in items.items()]
        stopped = [req for req, left, out in zip(items, to_go, emitted, strict=True) if left == out]
        return Done(Result(durations, emitted, stopped))

    def _durations(self, plan: Plan, steps: int) -> list[float]:
        tokens, context = sum(plan.tokens.values()), sum(req.computed for req in plan.tokens)
        time, durations = plan.time, list[float]()
        while len(durations) < steps and (not durations or time < plan.until):
            swapped = 0 if durations else plan.swapped_blocks
            durations.append(self.seconds(tokens + plan.padding, context, swapped))
            time += durations[-1]
            context += tokens
        return durations

    def least_time(self, arrivals: Sequence[Arrival], slots: int, tokens: int) -> float | None:
        """All slots decode in every step, each prompt is one chunk, and nothing is computed twice: the roofline of the costs."""
        outputs = [arrival.most_output for arrival in arrivals]
        work = sum(a.prompt_tokens + n - 1 for a, n in zip(arrivals, outputs, strict=True))
        context = sum((n - 1) * a.prompt_tokens + (n - 1) * (n - 2) // 2 for a, n in zip(arrivals, outputs, strict=True))
        steps = max(-(-sum(outputs) // slots), -(-work // tokens), *outputs)
        return (steps - 1) * self.seconds(0, 0) + self.seconds(work, context)

    def seconds(self, tokens: int, context: int, swapped: int = 0) -> float:
        """Duration of a step that computes `tokens` tokens over `context` cached ones, after copying `swapped` blocks."""
        if self.cost == "unit":
            return 1.0
        return self.per_step + self.per_token * tokens + self.per_context * context + self.per_swapped_block * swapped


CHOICES = {"simulated": Simulated}
