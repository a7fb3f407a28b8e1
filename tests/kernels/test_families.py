"""The master test for what each model family adds: the same bytes of logits however the engine came to compute them."""

import itertools
from dataclasses import replace

import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.ops import choose_ops, prefer_all
from slotlab_kernels.rope import Llama3Rope, YarnRope
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY, LlamaShape
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
BLOCK, BLOCKS = 8, 48
LENGTHS = (1, 8, 21, 50, 100)
SHAPES = {
    "llama3": replace(TINY, rope_scaling=Llama3Rope(8.0, 1.0, 4.0, 32), tied=False),
    "qwen2": replace(TINY, qkv_bias=True, heads=7, kv_heads=1, hidden=112),
    "qwen2-yarn": replace(TINY, qkv_bias=True, rope_scaling=YarnRope(4.0, 32)),
    "qwen3": replace(TINY, qk_norm=True, head_dim=40),
    "mistral": replace(TINY, window=13),
}


def make_runner(shape: LlamaShape, dtype: torch.dtype, implementation: str = "best") -> ModelRunner:
    ops = choose_ops(CPU, None if implementation == "best" else prefer_all(implementation))
    runner = ModelRunner(random_llama(shape, CPU, dtype, seed=2), BLOCKS, BLOCK, ops)
    runner.cache.all.fill_(torch.nan)
    return runner


def prompt(length: int) -> list[int]:
    return [(11 * i * i + 5 * length) % TINY.vocab for i in range(length)]


def logits(runner: ModelRunner, rows: list[Row]) -> list[bytes]:
    """What lies behind the tokens of one step."""
    seen: list[bytes] = []
    runner.probe = lambda index, logits: seen.append(logits.numpy().tobytes())
    runner.step(rows)
    return seen


def tables() -> dict[int, list[int]]:
    """Blocks for each length, scattered."""
    free = iter(sorted(range(BLOCKS), key=lambda block: block * 29 % BLOCKS))
    return {length: list(itertools.islice(free, -(-length // BLOCK))) for length in LENGTHS}


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("implementation", ("best", "numba"))
@pytest.mark.parametrize("family", SHAPES)
def test_logits_do_not_depend_on_the_batch_or_the_chunks(family: str, implementation: str, dtype: torch.dtype) -> None:
    runner, blocks = make_runner(SHAPES[family], dtype, implementation), tables()
    alone = [logits(runner, [Row(prompt(length), 0, blocks[length], GREEDY)])[0] for length in LENGTHS]
    runner.cache.all.fill_(torch.nan)
    assert logits(runner, [Row(prompt(length), 0, blocks[length], GREEDY) for length in LENGTHS]) == alone
    runner.cache.all.fill_(torch.nan)
    ended: dict[int, bytes] = {}
    for start in range(0, max(LENGTHS), 7):
        here = [length for length in LENGTHS if length > start]
        rows = [Row(prompt(n)[start : start + 7], start, blocks[n], GREEDY if n <= start + 7 else None) for n in here]
        ended |= zip([n for n in here if n <= start + 7], logits(runner, rows), strict=True)
    assert [ended[length] for length in LENGTHS] == alone


@pytest.mark.parametrize("implementation", ("best", "numba", "torch"))
def test_what_lies_outside_the_window_has_no_effect(implementation: str) -> None:
    """vllm#30887: NaN in the K and V of tokens that a sliding window has left."""
    shape = replace(SHAPES["mistral"], layers=1)
    runner, blocks, ids = make_runner(shape, torch.float32, implementation), list(range(8)), prompt(51)
    (clean,) = logits(runner, [Row(ids, 0, blocks, GREEDY)])
    slots = runner.cache.layers[0].flatten(1, 2)
    for token in range(51 - shape.window):
        slots[:, blocks[token // BLOCK] * BLOCK + token % BLOCK] = torch.nan
    assert logits(runner, [Row(ids[50:], 50, blocks, GREEDY)]) == [clean]
    slots[:, blocks[38 // BLOCK] * BLOCK + 38 % BLOCK] = torch.nan  # the oldest inside
    assert logits(runner, [Row(ids[50:], 50, blocks, GREEDY)]) != [clean]


def test_what_a_family_adds_changes_the_logits() -> None:
    """Or the tests above would prove nothing."""
    row = Row(prompt(50), 0, list(range(7)), GREEDY)
    added = {"window": 13, "qkv_bias": True, "qk_norm": True, "rope_scaling": YarnRope(4.0, 32)}
    shapes = [TINY, *(replace(TINY, **{key: value}) for key, value in added.items())]
    seen = {logits(make_runner(shape, torch.float32), [row])[0] for shape in shapes}
    assert len(seen) == len(shapes)
