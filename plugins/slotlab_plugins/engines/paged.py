"""A real engine: packed batches over a paged KV cache."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar

from slotlab import Arrival, Done, Engine, Model, Plan, RequestState, RequestView, Result, Streams, UserError, require
from slotlab.clock import WallClock
from slotlab_plugins.prompts import Conversations, Words, encode

if TYPE_CHECKING:
    from slotlab_kernels.runner import ModelRunner

DTYPES = ("auto", "fp32", "bf16", "fp16")


@dataclass
class Paged(Engine):
    """Runs the model: prefill chunks and decodes of all requests in one forward pass, K and V in blocks, on a CPU or a GPU.

    Prompts are random token ids unless the workload has words, and every request ends at its length in the workload, or where
    the model ends it if that is unknown. Tokens are greedy at `temperature` 0, else drawn with noise from the seed, the
    request and the position alone: the same tokens under every policy.
    `ops`: an implementation by name for some of the ops, as in `+engine.ops.paged_attention=torch`.
    """

    dtype: str = "auto"
    temperature: float = 0.0
    ops: dict[str, str] = field(default_factory=dict)

    real: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dtype in DTYPES, "dtype", self.dtype, ", ".join(DTYPES))
        require(self.temperature >= 0, "temperature", self.temperature, "at least 0")
        self._runner: ModelRunner | None = None
        self._model: Model | None = None
        self._ids: dict[int, list[int]] = {}  # prompt and output of each request
        self._host: dict[int, Any] = {}  # K and V of those who were swapped out
        self._words: dict[Words, list[int]] = {}  # ids of prompts in words
        self._eos: int | None = None  # ends the answers whose length is unknown
        self._lengths: list[int | None] = []

    @property
    def runner(self) -> ModelRunner:
        """The model runner of an open engine."""
        assert self._runner is not None, "the engine is not open"
        return self._runner

    def open(self, model: Model) -> Mapping[str, str]:
        import torch

        from slotlab_kernels.device import resolve_device, resolve_dtype
        from slotlab_kernels.ops import choose_ops
        from slotlab_kernels.roofline import costs, measure_peaks
        from slotlab_kernels.runner import ModelRunner

        try:
            device = resolve_device(self.device)
            dtype = resolve_dtype(self.dtype, device)
            ops = choose_ops(device, self.ops)
        except ValueError as error:
            raise UserError(f"engine: {error}") from None
        self._model = model
        self._runner = ModelRunner(model.load(device, dtype), self.num_blocks, self.block_size, ops)
        self._warm_up()
        self._costs, self._peaks = costs(self._runner.model.shape, dtype), measure_peaks(device, dtype)
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
        names = {f"op.{op}": name for op, name in ops.names.items()}
        return {
            "device": where,
            "dtype": str(dtype).removeprefix("torch."),
            "weights": model.origin(),
            "peak": str(self._peaks),
            **names,
        }

    def _warm_up(self) -> None:
        """Prompts of its own, so that no request pays for compiling: a prefill, a decode, and both at once."""
        from slotlab_kernels.batch import Row
        from slotlab_kernels.sampling import Sampling

        fit = min(self.num_blocks, 2)
        tokens, blocks, sampling = min(self.block_size, self.runner.limits.max_context - 1), list(range(fit)), Sampling()
        prefill = Row([1] * tokens, 0, blocks[:1], sampling)
        decode = Row([1], max(0, tokens - 1), blocks[:1], sampling)
        for rows in ([prefill], [decode], [decode, Row([1] * tokens, 0, blocks[1:], sampling)][:fit]):
            self.runner.step(rows)
        self.runner.reset()

    def clock(self) -> WallClock:
        return WallClock()

    def prepare(self, arrivals: Sequence[Arrival]) -> Sequence[Arrival]:
        words = {arrival.text for arrival in arrivals if arrival.text is not None}
        if words or any(arrival.output_tokens is None for arrival in arrivals):
            assert self._model is not None, "the engine is not open"
            tokenizer = self._model.tokenizer()
            if tokenizer.eos_id is None:
                raise UserError("workload: the model names no token that ends a text, so its answers would never end")
            self._eos = tokenizer.eos_id
            self._words |= {text: encode(tokenizer, text) for text in words - self._words.keys()}
        return [a if a.text is None else replace(a, prompt_tokens=len(self._words[a.text])) for a in arrivals]

    def begin(self, arrivals: Sequence[Arrival], streams: Streams) -> None:
        from slotlab_kernels.roofline import Work

        self._lengths = [arrival.output_tokens for arrival in arrivals]
        self._ids = Conversations(arrivals, streams, self.runner.model.shape.vocab, self._words)
        self._seed = streams.number("sampling")
        self._host.clear()
        self.runner.reset()
        self._work = Work()

    def work(self) -> Mapping[str, float]:
        work, costs, peaks = self._work, self._costs, self._peaks
        counts = {"flops": work.flops(costs), "bytes": work.bytes(costs), "forward_s": work.seconds}
        return {**counts, "peak_flops": peaks.flops, "peak_bandwidth": peaks.bandwidth}

    def submit(self, plan: Plan) -> Done:
        """One forward pass. A request whose known tokens are all computed emits one token."""
        from slotlab_kernels.batch import Row
        from slotlab_kernels.sampling import Sampling

        start = perf_counter()
        self._swap(plan)
        rows = []
        for req, n in plan.tokens.items():
            sampling = Sampling(self.temperature, self._seed, req.id) if req.remaining == n else None
            rows.append(Row(self._ids[req.id][req.computed : req.computed + n], req.computed, req.blocks, sampling))
        begin = perf_counter()
        tokens = self.runner.step(rows, plan.padding)
        self._work.add(rows, perf_counter() - begin)
        stopped = []
        for req, token in zip(plan.tokens, tokens, strict=True):
            if token is not None:
                self._ids[req.id].append(token)
                if self._ends(req, token):
                    stopped.append(req)
        emitted = [int(token is not None) for token in tokens]
        return Done(Result([perf_counter() - start], emitted, stopped))

    def _swap(self, plan: Plan) -> None:
        """Copy victims' blocks to host memory, then those of whoever returns back to the device."""
        cache, host = self.runner.cache, self._host
        for req, blocks in plan.swap_out.items():
            host[req.id] = cache.copy_out(blocks)
        for req, blocks in plan.swap_in.items():
            cache.copy_in(host.pop(req.id), blocks)
        for req in plan.tokens if host else ():
            host.pop(req.id, None)  # it came back to a prefix hit that was longer

    def content(self, req: RequestView, block: int) -> Hashable:
        size = self.block_size
        return tuple(self._ids[req.id][block * size : (block + 1) * size])

    def left(self, req: RequestState) -> None:
        self._host.pop(req.id, None)

    def _ends(self, req: RequestState, token: int) -> bool:
        """Whether `token`, not yet counted, is the last one of `req`."""
        length = self._lengths[req.id]
        ended = token == self._eos if length is None else req.emitted + 1 >= length
        return ended or req.emitted + 1 >= req.max_tokens

    def output(self, req: RequestState) -> list[int]:
        """The token ids that `req` has emitted."""
        return self._ids[req.id][req.prompt_tokens :]

    def close(self) -> None:
        self._runner = None
        self._host.clear()


CHOICES = {"paged": Paged}
