"""The master test: the logits behind a token are the same bytes however the engine came to compute them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import choose_ops, cpp_paths, prefer_all, torch_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import SMOLLM2_135M, TINY
from slotlab_kernels.weights import random_llama

products = SimpleNamespace(**run_path(str(Path(__file__).parent / "products.py")))
CPU = torch.device("cpu")
SHAPES = {"tiny": TINY, "smollm2": replace(SMOLLM2_135M, layers=3, vocab=8192)}
DTYPES = (torch.float32, torch.bfloat16)
BEST, *LESSER = cpp_paths.here()  # the paths of the C++ ops on this processor
BLOCK_SIZE, NUM_BLOCKS = 16, 160
OUTPUTS = 3
LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 300)


@dataclass(eq=False)
class Generation:
    """A prompt, what was emitted so far, and the logits behind each emitted token."""

    prompt: list[int]
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    emitted: list[int] = field(default_factory=list)
    logits: list[bytes] = field(default_factory=list)

    def left(self) -> int:
        return len(self.prompt) + len(self.emitted) - self.computed

    def take(self, count: int, pool: list[int]) -> Row:
        """The row that computes the next `count` tokens, in blocks from the pool."""
        end = self.computed + count
        while len(self.blocks) * BLOCK_SIZE < end:
            self.blocks.append(pool.pop())
        ids = (self.prompt + self.emitted)[self.computed : end]
        return Row(ids, self.computed, self.blocks, GREEDY if count == self.left() else None)

    def preempt(self, pool: list[int]) -> None:
        """Loses its blocks, as a victim does; all its tokens are computed again."""
        pool[:0] = self.blocks
        self.blocks, self.computed = [], 0


Plan = Callable[[list[Generation]], list[tuple[Generation, int]]]


def whole(running: list[Generation]) -> list[tuple[Generation, int]]:
    return [(one, one.left()) for one in running]


def one_by_one(running: list[Generation]) -> list[tuple[Generation, int]]:
    return [(one, 1) for one in running]


def chunks(*sizes: int) -> Plan:
    """A single generation's prompt in chunks of these sizes, then its decodes."""
    rest = iter(sizes)
    return lambda running: [(running[0], min(next(rest, 1), running[0].left()))]


def mixed(rng: random.Random) -> Plan:
    """Some of those running, in any order, each with a chunk of any size."""

    def plan(running: list[Generation]) -> list[tuple[Generation, int]]:
        chosen = rng.sample(running, rng.randint(1, len(running)))
        return [(one, rng.randint(1, min(one.left(), 120))) for one in chosen]

    return plan


def serve(runner: ModelRunner, generations: list[Generation], plan: Plan, rng: random.Random, preempt: float = 0.0) -> None:
    """Runs all to their end in blocks of random numbers, over a cache full of NaN."""
    runner.cache.all.fill_(torch.nan)
    pool = rng.sample(range(NUM_BLOCKS), NUM_BLOCKS)
    while running := [one for one in generations if len(one.emitted) < OUTPUTS]:
        if rng.random() < preempt:
            rng.choice(running).preempt(pool)
        step = plan(running)
        seen: dict[int, bytes] = {}
        runner.probe = lambda index, logits, seen=seen: seen.__setitem__(index, logits.numpy().tobytes())
        tokens = runner.step([one.take(count, pool) for one, count in step])
        for index, ((one, count), token) in enumerate(zip(step, tokens, strict=True)):
            one.computed += count
            if token is not None:
                one.emitted.append(token)
                one.logits.append(seen[index])


def prompts(vocab: int, lengths: tuple[int, ...]) -> list[list[int]]:
    return [random.Random(length).choices(range(vocab), k=length) for length in lengths]


@cache
def model(shape: str, dtype: torch.dtype) -> Llama:
    return random_llama(SHAPES[shape], CPU, dtype, seed=1)


def make_runner(shape: str, dtype: torch.dtype, implementation: str = "cpp") -> ModelRunner:
    ops = choose_ops(CPU, prefer_all(implementation))
    return ModelRunner(model(shape, dtype), NUM_BLOCKS, BLOCK_SIZE, ops)


def run_all(runner: ModelRunner, lengths: tuple[int, ...], plan: Plan, seed: int, preempt: float = 0.0) -> list[list[bytes]]:
    generations = [Generation(prompt) for prompt in prompts(runner.model.shape.vocab, lengths)]
    serve(runner, generations, plan, random.Random(seed), preempt)
    return [one.logits for one in generations]


def run_alone(runner: ModelRunner, lengths: tuple[int, ...]) -> list[list[bytes]]:
    alone = []
    for prompt in prompts(runner.model.shape.vocab, lengths):
        generation = Generation(prompt)
        serve(runner, [generation], whole, random.Random(0))
        alone.append(generation.logits)
    return alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("shape", "implementation"),
    [*[(shape, name) for name in (BEST, "numba") for shape in SHAPES], *[("tiny", path) for path in LESSER]],
)
def test_logits_do_not_depend_on_the_batch_the_chunks_or_preemption(shape: str, dtype: torch.dtype, implementation: str) -> None:
    runner = make_runner(shape, dtype, implementation)
    alone = run_alone(runner, LENGTHS)
    assert run_all(runner, LENGTHS, whole, seed=1) == alone
    assert run_all(runner, LENGTHS, mixed(random.Random(2)), seed=2) == alone
    assert run_all(runner, LENGTHS, mixed(random.Random(3)), seed=3, preempt=0.3) == alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_do_not_depend_on_how_a_long_prompt_is_cut(shape: str, dtype: torch.dtype) -> None:
    runner = make_runner(shape, dtype)
    alone = run_alone(runner, (300,))
    for plan in (chunks(256, 44), chunks(128, 128, 44), chunks(100, 200), chunks(299, 1), one_by_one):
        assert run_all(runner, (300,), plan, seed=4) == alone


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_do_not_depend_on_many_rows(shape: str, dtype: torch.dtype) -> None:
    runner = make_runner(shape, dtype)
    lengths = (1, 513, 1024)
    alone = run_alone(runner, lengths)
    assert run_all(runner, lengths, whole, seed=5) == alone
    assert run_all(runner, lengths, mixed(random.Random(6)), seed=6) == alone
    assert run_all(runner, lengths[2:], chunks(513, 511), seed=7) == alone[2:]


@pytest.mark.parametrize("shared", (1, 2))
def test_logits_over_shared_prefix_blocks_are_those_of_a_full_prefill(shared: int) -> None:
    """Eight prefix hits at once, as many requests with one system prompt would have them."""
    runner, prompt = make_runner("tiny", torch.float32), prompts(TINY.vocab, (41,))[0]
    seen: list[bytes] = []
    runner.probe = lambda index, logits: seen.append(logits.numpy().tobytes())
    runner.step([Row(prompt, 0, [3, 9, 4], GREEDY)])
    start = shared * BLOCK_SIZE
    tails = [[20 + 2 * row, 21 + 2 * row] for row in range(8)]
    runner.step([Row(prompt[start:], start, [3, 9][:shared] + tail, GREEDY) for tail in tails])
    assert len(seen) == 9 and len(set(seen)) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ops", ({}, prefer_all("numba"), prefer_all("torch"), {"linear": "torch"}, {"paged_attention": "torch"}))
def test_logits_do_not_depend_on_a_library_that_rounds_by_the_number_of_rows(
    ops: dict[str, str], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As MKL does on some processors of Intel: whatever the ops are, and also where they are mixed."""
    products.plant(monkeypatch, products.by_rows)
    runner = ModelRunner(model("tiny", dtype), NUM_BLOCKS, BLOCK_SIZE, choose_ops(CPU, ops))
    lengths = (1, 2, 7, 8, 9, 17, 33, 64)
    alone = run_alone(runner, lengths)
    assert run_all(runner, lengths, whole, seed=8) == alone
    assert run_all(runner, lengths, mixed(random.Random(9)), seed=9, preempt=0.3) == alone


@pytest.mark.parametrize("dtype", DTYPES)
def test_with_such_a_library_bare_the_logits_depend_on_the_batch(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: it shows that the tests above can fail."""
    products.plant(monkeypatch, products.by_rows)
    ops = replace(choose_ops(CPU, {"linear": "torch"}), linear=torch_ops._linear)
    runner = ModelRunner(model("tiny", dtype), NUM_BLOCKS, BLOCK_SIZE, ops)
    assert run_all(runner, (9, 20), whole, seed=0) != run_alone(runner, (9, 20))


@pytest.mark.parametrize("implementation", ("numba", "torch"))
def test_ops_of_single_rows_are_invariant_at_any_number_of_threads(implementation: str) -> None:
    """Torch's own silu is not: at 5 threads the last element of a thread's share is rounded otherwise."""
    ops = choose_ops(CPU, prefer_all(implementation))
    gate_up, weight = torch.randn(104, 3072, generator=torch.Generator().manual_seed(0)), torch.ones(3072)
    parts, before = gate_up.split(8), torch.get_num_threads()
    try:
        torch.set_num_threads(5)
        gated, normed = ops.silu_mul(gate_up), ops.rms_norm(gate_up, weight, 1e-5)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(gated, torch.cat([ops.silu_mul(part) for part in parts]))
    assert torch.equal(normed, torch.cat([ops.rms_norm(part, weight, 1e-5) for part in parts]))


@pytest.mark.parametrize("implementation", ("cpp", "numba"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", (1, 3, 5))
def test_logits_are_the_same_at_any_number_of_threads(dtype: torch.dtype, threads: int, implementation: str) -> None:
    runner, before = make_runner("smollm2", dtype, implementation), torch.get_num_threads()
    expected = run_alone(runner, (33, 100))
    try:
        torch.set_num_threads(threads)
        assert run_all(runner, (33, 100), mixed(random.Random(10)), seed=10) == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("implementation", ("cpp", "numba", "torch"))
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_gives_a_row_the_same_bytes_among_any_others(
    dtype: torch.dtype, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it stands among them, also where outputs do not fill the last panel, and inputs are few."""
    products.plant(monkeypatch, products.by_rows)
    ops, generator = choose_ops(CPU, prefer_all(implementation)), torch.Generator().manual_seed(0)
    for inputs, outputs in ((576, 960), (24, 72), (2, 5)):
        x = torch.randn(61, inputs, generator=generator).to(dtype)
        weight = (torch.randn(outputs, inputs, generator=generator) / inputs**0.5).to(dtype)
        bias = torch.randn(outputs, generator=generator).to(dtype)
        packed = ops.pack(weight)
        together, wide = ops.linear(x, packed, bias), ops.linear(x, packed, bias, wide=True)
        assert all(torch.equal(ops.linear(x[:rows], packed, bias), together[:rows]) for rows in range(30))
        assert all(torch.equal(ops.linear(x[rows:], packed, bias), together[rows:]) for rows in range(1, 14))
        exact = torch.einsum("tk,nk->tn", x.double(), weight.double()) + bias.double()
        tolerance = 1e-5 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(together.double(), exact, rtol=tolerance, atol=tolerance)
        assert wide.dtype is torch.float32 and torch.equal(wide.to(dtype), together)


def test_numba_sums_in_the_order_of_the_inputs_by_fused_steps() -> None:
    """So an output is the same number on every processor that has a fused multiply-add: here it is computed in fp64."""
    x, weight, bias = (torch.randint(-4096, 4096, size).float() / 1024 for size in ((7, 40), (21, 40), (21,)))
    expected = bias.expand(7, 21)
    for unit in range(40):
        expected = (expected.double() + x[:, None, unit].double() * weight[None, :, unit].double()).float()
    ops = choose_ops(CPU, {"linear": "numba"})
    assert torch.equal(ops.linear(x, ops.pack(weight), bias), expected)
