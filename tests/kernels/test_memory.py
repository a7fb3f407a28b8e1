"""How many blocks fit, and what is said where something does not."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.kv_cache import bytes_per_block
from slotlab_kernels.memory import CudaGauge, OutOfMemory, fit_num_blocks, memory_errors, rehearsal_blocks, rehearse
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
MODEL = random_llama(TINY, CPU, torch.float32, seed=0)
PER_BLOCK = bytes_per_block(TINY, 8, torch.float32)


def build(num_blocks: int) -> ModelRunner:
    return ModelRunner(MODEL, num_blocks, 8, choose_ops(CPU))


@dataclass
class FakeGauge:
    """Does the work, and claims that it took so much beside the cache of the trial."""

    total: int
    beside: int
    trial: int = field(default=rehearsal_blocks(40, 4, 8) * PER_BLOCK, init=False)

    def most(self, work: Callable[[], None]) -> int:
        work()
        return self.beside + self.trial


@pytest.mark.parametrize(("room", "blocks"), ((PER_BLOCK, 1), (2 * PER_BLOCK - 1, 1), (100 * PER_BLOCK, 100)))
def test_the_cache_gets_what_is_left_of_the_share(room: int, blocks: int) -> None:
    gauge = FakeGauge(total=4 * (5000 + room), beside=5000)
    assert fit_num_blocks(build, gauge, 0.25, max_tokens=40, max_rows=4, block_size=8) == blocks


def test_the_gauge_counts_what_others_hold_and_the_most_that_torch_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1000 bytes 400 are free: 150 are torch's now, so 450 others'; torch had 220 at the most."""
    calls: list[str] = []
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *device, name=name: calls.append(name))
    for name, value in (("mem_get_info", (400, 1000)), ("memory_reserved", 150), ("max_memory_reserved", 220)):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    gauge = CudaGauge(torch.device("cuda"))
    assert gauge.most(lambda: calls.append("work")) == 450 + 220 and gauge.total == 1000
    assert calls == ["synchronize", "empty_cache", "reset_peak_memory_stats", "work", "synchronize"]


def test_no_room_for_a_block_is_one_clear_line() -> None:
    gauge = FakeGauge(total=10**9, beside=900 * 10**6)
    with pytest.raises(
        OutOfMemory, match=r"no block of the KV cache fits: 0\.5 of 1\.0 GB, .* a step of 40 tokens take 0\.9 GB; raise"
    ):
        fit_num_blocks(build, gauge, 0.5, max_tokens=40, max_rows=4, block_size=8)


@pytest.mark.parametrize(("tokens", "rows"), ((40, 4), (41, 4), (3, 4), (1, 1), (5000, 2)))
def test_the_rehearsal_is_the_largest_prefill_and_the_longest_decodes(
    tokens: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, steps = build(rehearsal_blocks(tokens, rows, 8)), list[list[Row]]()
    monkeypatch.setattr(runner, "step", steps.append)
    rehearse(runner, tokens, rows)
    prefill, decode = steps
    assert sum(len(row.ids) for row in prefill) == min(tokens, rows * TINY.max_context) and len(prefill) <= rows
    assert [len(row.ids) + row.start for row in decode] == [TINY.max_context] * rows


def test_the_rehearsal_leaves_nothing_behind() -> None:
    runner = build(rehearsal_blocks(40, 4, 8))
    rehearse(runner, 40, 4)
    assert not runner.cache.all.any()


@pytest.mark.parametrize("num_blocks", (10**9, 10**15))
def test_a_cache_larger_than_the_machine_is_one_clear_line(num_blocks: int) -> None:
    with pytest.raises(OutOfMemory, match=r"the KV cache does not fit .*blocks of 8 tokens are .* GB, the machine has") as error:
        build(num_blocks)
    assert "lower engine.num_blocks" in str(error.value) and "\n" not in str(error.value)


def test_a_step_that_does_not_fit_leaves_the_runner_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = build(8)
    rows, forward = [Row([1, 2, 3], 0, [0], GREEDY, 1)], runner.model.forward
    expected = runner.step(rows)

    def too_large(*args: object) -> torch.Tensor:
        return torch.empty(1 << 60)  # what torch itself raises

    monkeypatch.setattr(runner.model, "forward", too_large)
    with pytest.raises(OutOfMemory, match=r"a step does not fit .*max_num_batched_tokens") as error:
        runner.step([Row([4] * 5, 0, [1], GREEDY, 2)])
    assert "\n" not in str(error.value)
    monkeypatch.setattr(runner.model, "forward", forward)
    assert runner.step(rows) == expected


@pytest.mark.parametrize("error", (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), MemoryError("x")))
def test_every_shortage_is_told_by_one_type(error: Exception) -> None:
    with pytest.raises(OutOfMemory), memory_errors("a step", CPU):
        raise error


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("a step", CPU):
        raise RuntimeError("shapes cannot be multiplied")
