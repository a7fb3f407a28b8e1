"""A real engine: packed batches over a paged KV cache."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from slotlab import Arrival, Engine, Model, Plan, RequestState, RequestView, Result, Streams, UserError, require
from slotlab.clock import WallClock
from slotlab.limits import MOST_TIMES, MOST_TOKENS
from slotlab_plugins.opening import open_runner
from slotlab_plugins.prompts import Conversations, Words, encode

if TYPE_CHECKING:
    from slotlab_kernels.batch import Row
    from slotlab_kernels.runner import Launched, ModelRunner

DTYPES = ("auto", "fp32", "bf16", "fp16")


@dataclass
class Step:
    """A forward pass that was handed to the device."""

    engine: Paged
    rows: list[Row]
    places: list[tuple[RequestState, int] | None]  # whose token comes out of each row, and its place among the request's ids
    launched: Launched
    start: float
    forecast: Result | None = None

    def __post_init__(self) -> None:
        self._outcome: Result | None = None

    def result(self) -> Result:
        """Wait for it; the second time it is there already."""
        if self._outcome is None:
            self._outcome = self.engine.read(self)
        return self._outcome


@dataclass
class Paged(Engine):
    """Runs the model: prefill chunks and decodes of all requests in one forward pass, K and V in blocks, on a CPU or a GPU.

    Prompts are random token ids unless the workload has words, and every request ends at its length in the workload, or where
    the model ends it if that is unknown. Tokens are greedy at `temperature` 0, else drawn with noise from the seed, the
    request and the position alone: the same tokens under every policy. They are drawn among the `top_k` likeliest (0: all),
    and of those among the fewest that have together at least the probability `top_p` of them.
    `ops`: an implementation by name for some of the ops, as in `+engine.ops.paged_attention=torch`.

    On CUDA: `gpu_memory_utilization` makes the pool as large as fits into that share of the memory, instead of `num_blocks`.
    `graphs`: decode steps are replayed from graphs. `overlap`: the next step is planned and submitted while one runs, where all
    its answers have known lengths; null: on CUDA. `deterministic`: a token's numbers do not depend on its batch, as on a CPU.
    """

    dtype: str = "auto"
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    ops: dict[str, str] = field(default_factory=dict)
    gpu_memory_utilization: float | None = None
    graphs: bool = True
    overlap: bool | None = None
    deterministic: bool = False

    real: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dtype in DTYPES, "dtype", self.dtype, ", ".join(DTYPES))
        require(0 <= self.temperature <= MOST_TIMES, "temperature", self.temperature, f"at least 0 and at most {MOST_TIMES:g}")
        require(0 <= self.top_k <= MOST_TOKENS, "top_k", self.top_k, f"at least 0 and at most {MOST_TOKENS}")
        require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0, at most 1")
        share = self.gpu_memory_utilization
        require(share is None or 0 < share <= 1, "gpu_memory_utilization", share, "above 0, at most 1, or null")
        self.most = 32, 512  # sequences and tokens of the largest step
        self._runner: ModelRunner | None = None
        self._model: Model | None = None
        self._ids: dict[int, list[int]] = {}  # prompt and output of each request
        self._host: dict[int, Any] = {}  # K and V of those who were swapped out
        self._words: dict[Words, list[int]] = {}  # ids of prompts in words
        self._end_ids = frozenset[int]()  # each ends the answers whose length is unknown
        self._lengths: list[int | None] = []

    @property
    def runner(self) -> ModelRunner:
        """The model runner of an open engine."""
        assert self._runner is not None, "the engine is not open"
        return self._runner

    def caps(self, max_num_seqs: int, max_num_batched_tokens: int) -> None:
        self.most = max_num_seqs, max_num_batched_tokens

    def overlaps(self, device: Any) -> bool:
        """Whether a step may be in flight while the next is planned."""
        return device.type == "cuda" if self.overlap is None else self.overlap

    def open(self, model: Model) -> Mapping[str, str]:
        from slotlab_kernels.roofline import costs, measure_peaks

        self._model, self._opened = model, datetime.now()  # the time that chat templates see
        self._runner, facts = open_runner(self, model)
        shape, device, dtype = self._runner.model.shape, self._runner.model.device, self._runner.model.dtype
        self._costs, self._peaks = costs(shape, dtype), measure_peaks(device, dtype)
        self._overlaps = self.overlaps(device)
        return {**facts, "peak": str(self._peaks), "date": f"{self._opened:%Y-%m-%d}"}

    def clock(self) -> WallClock:
        return WallClock()

    def prepare(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        words = {arrival.text for arrival in arrivals if arrival.text is not None}
        if words or any(arrival.output_tokens is None for arrival in arrivals):
            assert self._model is not None, "the engine is not open"
            tokenizer, vocab = self._model.tokenizer(), self.runner.model.shape.vocab
            self._end_ids = tokenizer.end_ids & set(range(vocab))
            if not self._end_ids:
                raise UserError("workload: the model names no token that ends a text, so its answers would never end")
            self._words |= {text: encode(tokenizer, text, vocab, self._opened) for text in words - self._words.keys()}
        return [a if a.text is None else replace(a, prompt_tokens=len(self._words[a.text])) for a in arrivals]

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        from slotlab_kernels.roofline import Work

        self._lengths = [arrival.output_tokens for arrival in arrivals]
        self._ids = Conversations(arrivals, streams, self.runner.model.shape.vocab, self._words)
        self._seed = streams.number("sampling")
        self._host.clear()
        self.runner.reset()
        self._work, self._read = Work(), 0.0

    def work(self) -> Mapping[str, float]:
        work, costs, peaks = self._work, self._costs, self._peaks
        counts = {"flops": work.flops(costs), "bytes": work.bytes(costs), "forward_s": work.seconds}
        return {**counts, "peak_flops": peaks.flops, "peak_bandwidth": peaks.bandwidth}

    def submit(self, plan: Plan) -> Step:
        """One forward pass. A request whose known tokens are all computed emits one token."""
        from slotlab_kernels.batch import LATEST, Row
        from slotlab_kernels.sampling import Sampling

        start = perf_counter()
        self._swap(plan)
        rows, places, known = [], list[tuple[RequestState, int] | None](), True
        for req, n in plan.tokens.items():
            ids, emits = self._ids[req.id], req.remaining == n
            sampling = Sampling(self.temperature, self._seed, req.id, self.top_k, self.top_p) if emits else None
            rows.append(Row(ids[req.computed : req.computed + n], req.computed, req.blocks, sampling, req.id))
            places.append((req, len(ids)) if emits else None)
            known = known and not (emits and self._lengths[req.id] is None)
            if emits:
                ids.append(LATEST)  # until the token is read
        step = Step(self, rows, places, self.runner.launch(rows, plan.padding), start)
        if known and self._overlaps:
            stopped = [req for req in plan.tokens if req.remaining == plan.tokens[req] and self._ends(req)]
            step.forecast = Result([0.0], [int(place is not None) for place in places], stopped)
        return step

    def read(self, step: Step) -> Result:
        """Wait for a step and take over its tokens."""
        tokens, stopped = step.launched.tokens(), []
        for place, token in zip(step.places, tokens, strict=True):
            if place is not None and token is not None:
                req, index = place
                self._ids[req.id][index] = token
                if step.forecast is None and self._ends(req, token):
                    stopped.append(req)
        now = perf_counter()
        began, self._read = max(step.start, self._read), now  # a step in flight begins when the one before it ends
        self._work.add(step.rows, now - began)
        emitted = [int(place is not None) for place in step.places]
        return Result([now - began], emitted, step.forecast.stopped if step.forecast else stopped)

    def _swap(self, plan: Plan) -> None:
        """Copy victims' blocks to host memory, then those of whoever returns back to the device."""
        runner, host = self.runner, self._host
        for req, blocks in plan.swap_out.items():
            host[req.id] = runner.copy_out(blocks)
        for req, blocks in plan.swap_in.items():
            runner.copy_in(host.pop(req.id), blocks)
        for req in plan.tokens if host else ():
            host.pop(req.id, None)  # it came back to a prefix hit that was longer

    def content(self, req: RequestView, block: int) -> Hashable:
        size = self.block_size
        return tuple(self._ids[req.id][block * size : (block + 1) * size])

    def left(self, req: RequestState) -> None:
        self._host.pop(req.id, None)
        self.runner.forget(req.id)

    def _ends(self, req: RequestState, token: int | None = None) -> bool:
        """Whether `token`, not yet counted, is the last one of `req`; which one it is counts only if its length is unknown."""
        length = self._lengths[req.id]
        ended = token in self._end_ids if length is None else req.emitted + 1 >= length
        return ended or req.emitted + 1 >= req.max_tokens

    def output(self, req: RequestState) -> list[int]:
        """The token ids that `req` has emitted."""
        return self._ids[req.id][req.prompt_tokens :]

    def close(self) -> None:
        self._runner = None
        self._host.clear()
        self._ids = {}


CHOICES = {"paged": Paged}
