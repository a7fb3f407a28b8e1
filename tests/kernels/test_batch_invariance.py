"""The master test: the logits behind a token are the same bytes however the engine came to compute them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache

import pytest
import torch
import torch.nn.functional as F

from slotlab_kernels import batch
from slotlab_kernels.batch import Row
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import choose_ops, prefer_all
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import SMOLLM2_135M, TINY
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
SHAPES = {"tiny": TINY, "smollm2": replace(SMOLLM2_135M, layers=3, vocab=8192)}
DTYPES = (torch.float32, torch.bfloat16)
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


@pytest.mark.parametrize("implementation", ("cpp", "numba"))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
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
def test_the_torch_reference_is_invariant_too_with_few_threads(dtype: torch.dtype) -> None:
    runner = make_runner("tiny", dtype, "torch")
    lengths = LENGTHS[:-1]
    alone = run_alone(runner, lengths)
    assert run_all(runner, lengths, whole, seed=8) == alone
    assert run_all(runner, lengths, mixed(random.Random(9)), seed=9, preempt=0.3) == alone


def test_numba_ops_are_invariant_at_any_number_of_threads() -> None:
    """Torch's silu is not: at 5 threads the last element of a thread's share is rounded otherwise."""
    numba = choose_ops(CPU, prefer_all("numba"))
    gate_up = torch.randn(104, 3072, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(5)
        together = numba.silu_mul(gate_up)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together, torch.cat([numba.silu_mul(gate_up[at : at + 8]) for at in range(0, 104, 8)]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", (1, 3, 5))
def test_cpp_logits_are_the_same_at_any_number_of_threads(dtype: torch.dtype, threads: int) -> None:
    runner, before = make_runner("smollm2", dtype), torch.get_num_threads()
    expected = run_alone(runner, (33, 100))
    try:
        torch.set_num_threads(threads)
        assert run_all(runner, (33, 100), mixed(random.Random(10)), seed=10) == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_packed_product_gives_a_row_the_same_bytes_among_any_others(dtype: torch.dtype) -> None:
    """Also where outputs do not fill the last panel, and inputs are few."""
    ops, generator = choose_ops(CPU, prefer_all("cpp")), torch.Generator().manual_seed(0)
    for inputs, outputs in ((576, 960), (24, 72), (2, 5)):
        x = torch.randn(61, inputs, generator=generator).to(dtype)
        weight = (torch.randn(outputs, inputs, generator=generator) / inputs**0.5).to(dtype)
        bias = torch.randn(outputs, generator=generator).to(dtype)
        packed = ops.pack(weight)
        together = ops.linear(x, packed, bias)
        assert all(torch.equal(ops.linear(x[:rows], packed, bias), together[:rows]) for rows in range(1, 30))
        exact = F.linear(x.double(), weight.double(), bias.double())
        tolerance = 1e-5 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(together.double(), exact, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(ops.linear(x, packed, bias, wide=True).double(), exact, rtol=1e-4, atol=1e-4)


def test_without_padded_rows_fp32_logits_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: it shows that the master test can fail, and why rows are padded."""
    x, w = torch.randn(8, 576), torch.randn(960, 576)
    if all(torch.equal(F.linear(x[:rows], w), F.linear(x, w)[:rows]) for rows in (1, 2, 3, 5, 7)):
        pytest.skip("this machine's BLAS rounds alike for any number of rows")
    runner = make_runner("smollm2", torch.float32, "numba")
    padded = [run_all(runner, (1,) * count, whole, seed=0) for count in (1, 2, 3, 5, 7)]
    monkeypatch.setattr(batch, "ROW_PADDING", 1)
    bare = [run_all(runner, (1,) * count, whole, seed=0) for count in (1, 2, 3, 5, 7)]
    assert bare != padded
    assert len({one[0][0] for one in bare}) > 1 and len({one[0][0] for one in padded}) == 1
