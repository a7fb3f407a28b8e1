import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.kv_cache import KVCache, bytes_per_block
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY, Sampling
from slotlab_kernels.shape import SMOLLM2_135M, TINY
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def runner() -> ModelRunner:
    return ModelRunner(random_llama(TINY, CPU, torch.float32, seed=0), num_blocks=32, block_size=8, ops=choose_ops(CPU))


def test_a_step_gives_a_token_where_logits_are_wanted(runner: ModelRunner) -> None:
    tokens = runner.step([Row([1, 2, 3], 0, [4], GREEDY), Row([5] * 9, 0, [7, 8], None), Row([9], 0, [2], Sampling(1.0))])
    assert tokens[1] is None
    assert all(token is not None and 0 <= token < TINY.vocab for token in (tokens[0], tokens[2]))


def test_no_rows_is_no_work(runner: ModelRunner) -> None:
    assert runner.step([]) == []


def test_the_probe_sees_the_logits_behind_each_token(runner: ModelRunner) -> None:
    seen: dict[int, torch.Tensor] = {}
    runner.probe = lambda index, logits: seen.__setitem__(index, logits)
    tokens = runner.step([Row([5], 0, [7], None), Row([1, 2], 0, [4], GREEDY)])
    runner.probe = None
    assert seen.keys() == {1} and seen[1].dtype == torch.float32 and seen[1].shape == (TINY.vocab,)
    assert tokens[1] == seen[1].argmax()


def test_a_sampled_token_does_not_depend_on_its_batch(runner: ModelRunner) -> None:
    rows = [Row([10 + r, 20, 30], 0, [r], Sampling(1.5, seed=1, request=r)) for r in range(8)]
    together = runner.step(rows)
    assert [runner.step([row])[0] for row in rows] == together
    assert runner.step(rows[::-1]) == together[::-1]
    other_seed = [Row(row.ids, 0, row.blocks, Sampling(1.5, seed=2, request=r)) for r, row in enumerate(rows)]
    assert runner.step(other_seed) != together


def test_reset_forgets_the_cache(runner: ModelRunner) -> None:
    runner.step([Row([1], 0, [4], GREEDY)])
    assert runner.cache.all.any()
    runner.reset()
    assert not runner.cache.all.any()


def test_the_cache_takes_the_memory_that_was_announced() -> None:
    cache = KVCache(TINY, num_blocks=3, block_size=16, device=CPU, dtype=torch.bfloat16, ops=choose_ops(CPU))
    assert cache.all.nbytes == 3 * bytes_per_block(TINY, 16, torch.bfloat16)
    assert cache.layers[1].data_ptr() == cache.all[1].data_ptr()
    assert bytes_per_block(SMOLLM2_135M, 16, torch.bfloat16) == 30 * 2 * 16 * 3 * 64 * 2
