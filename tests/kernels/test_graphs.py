"""Decode steps in graphs, here remembered work on the same buffers: sizes, padding, and which steps run without one."""

import random
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch

from slotlab_kernels.batch import LATEST, Row
from slotlab_kernels.graphs import Capture, graph_contexts, graph_sizes
from slotlab_kernels.ops import Ops, choose_ops, prefer_all, torch_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY, Sampling
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama

delayed = SimpleNamespace(**run_path(str(Path(__file__).parent / "delayed.py")))
CPU = torch.device("cpu")
MODEL = random_llama(TINY, CPU, torch.float32, seed=0)
BLOCK_SIZE, NUM_BLOCKS, MAX_ROWS, MAX_CONTEXT = 4, 65, 12, 20
CAPTURE = Capture(MAX_ROWS, MAX_CONTEXT)


def ops_of(name: str) -> Ops:
    return choose_ops(CPU, prefer_all(name) | {"linear": "torch"})


def make_runner(capture: Capture | None = CAPTURE, ops: str = "numba", **options: object) -> ModelRunner:
    graphs = delayed.FakeGraphs() if capture else None
    runner = ModelRunner(MODEL, NUM_BLOCKS, BLOCK_SIZE, ops_of(ops), capture, graphs, **options)  # type: ignore[arg-type]
    runner.cache.all.fill_(torch.nan)
    return runner


def decodes(count: int, start: int = 9, sampling: Sampling = GREEDY) -> list[Row]:
    """Rows of one token each, of contexts that differ, in blocks of their own."""
    return [
        Row([7 + row], start - row % 3, [5 * row, 5 * row + 1, 5 * row + 2, 5 * row + 3, 5 * row + 4], sampling)
        for row in range(count)
    ]


def prefills(rows: list[Row]) -> list[Row]:
    return [Row(random.Random(i).choices(range(TINY.vocab), k=row.start), 0, row.blocks, None) for i, row in enumerate(rows)]


def test_sizes_step_up_and_none_is_zero() -> None:
    """transformers#42699: a graph of nothing failed without a word."""
    assert graph_sizes(1) == [1] and graph_sizes(3) == [1, 2, 3] and graph_sizes(8) == [1, 2, 4, 8]
    assert graph_sizes(20) == [1, 2, 4, 8, 16, 20]
    all = graph_sizes(4096)
    assert all[:6] == [1, 2, 4, 8, 16, 24] and all[-1] == 512 and 240 in all and 272 not in all and 288 in all
    with pytest.raises(AssertionError):
        graph_sizes(0)


def test_the_largest_is_captured_first() -> None:
    """So that the others find its memory in the pool."""
    graphs = delayed.FakeGraphs()
    ModelRunner(MODEL, NUM_BLOCKS, BLOCK_SIZE, ops_of("numba"), CAPTURE, graphs)
    assert graphs.captured == [12, 8, 4, 2, 1]


def test_capturing_writes_nothing() -> None:
    runner = ModelRunner(MODEL, NUM_BLOCKS, BLOCK_SIZE, ops_of("numba"), CAPTURE, delayed.FakeGraphs())
    assert not runner.cache.all.any() and not runner._pool.tokens[:-1].any()


@pytest.mark.parametrize("ops", ("numba", "torch"))
def test_a_graph_gives_the_tokens_and_the_cache_of_a_step_without(ops: str) -> None:
    """At every number of rows: what was left in the buffers by larger batches before is not seen (mini-sglang#98)."""
    graphed, eager = make_runner(ops=ops), make_runner(None, ops)
    for count in (12, 1, 5, 8, 3, 11, 2):
        rows = decodes(count)
        for runner in (graphed, eager):
            runner.step(prefills(rows))
        assert graphed.step(rows) == eager.step(rows)
        assert torch.equal(graphed.cache.all.view(torch.int32), eager.cache.all.view(torch.int32))
    assert graphed.graphs is not None and graphed.graphs.counts == {"graph": 7, "prefill": 7}


def test_sampled_rows_run_in_sampled_graphs() -> None:
    graphed, eager = make_runner(Capture(MAX_ROWS, MAX_CONTEXT, sampled=True)), make_runner(None)
    rows = [Row(row.ids, row.start, row.blocks, Sampling(1.5, 3, i, top_k=40, top_p=0.9)) for i, row in enumerate(decodes(6))]
    rows[2].sampling = GREEDY
    for runner in (graphed, eager):
        runner.step(prefills(rows))
    assert graphed.step(rows) == eager.step(rows)
    assert graphed.graphs is not None and graphed.graphs.counts["graph"] == 1


def test_padding_of_a_policy_counts_for_the_size() -> None:
    runner, rows = make_runner(), decodes(2)
    runner.step(prefills(rows))
    assert runner.step(rows, padding=6) == runner.step(rows)
    assert runner.graphs is not None
    keys = [runner.graphs.choose(rows, padding, False) for padding in (0, 1, 6, 10, 11)]
    assert keys == [(2, MAX_CONTEXT), (4, MAX_CONTEXT), (8, MAX_CONTEXT), (12, MAX_CONTEXT), None]


@pytest.mark.parametrize(
    ("rows", "why"),
    (
        ([*decodes(2), Row([1, 2], 0, [20], GREEDY)], "prefill"),
        ([*decodes(2), Row([1], 0, [20], None)], "prefill"),
        (decodes(13, 2), "rows"),
        ([Row([1], 20, [0, 1, 2, 3, 4, 5], GREEDY)], "context"),
        (decodes(2, sampling=Sampling(0.5)), "sampling"),
    ),
)
def test_what_no_graph_is_for_runs_without_and_is_counted(rows: list[Row], why: str) -> None:
    graphed, eager = make_runner(), make_runner(None)
    for runner in (graphed, eager):
        runner.cache.reset()
    assert graphed.step(rows) == eager.step(rows)
    assert graphed.graphs is not None and graphed.graphs.counts == {why: 1}


def test_a_deterministic_runner_multiplies_in_slices_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product has the same number of rows."""
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on: None)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    plain = replace(ops_of("torch"), linear=torch_ops._linear)  # as on CUDA
    runner = ModelRunner(MODEL, NUM_BLOCKS, BLOCK_SIZE, plain, deterministic=True)
    assert runner.ops.names["linear"] == "torch, 128 rows at a time"
    logits: dict[int, list[bytes]] = {}
    rows = [Row([3, 1 + row], 0, [row], GREEDY) for row in range(7)]
    for together in (rows, *([row] for row in rows[:3])):
        runner.probe = lambda index, logits_V, at=together: logits.setdefault(at[index].ids[1], []).append(
            logits_V.numpy().tobytes()
        )
        runner.step(together)
    assert [len(set(of)) for of in logits.values()] == [1] * 7 and len(logits[1]) == 2
    x, weight = torch.randn(300, 64), torch.randn(96, 64)
    assert torch.equal(runner.ops.linear(x, weight), torch.cat([runner.ops.linear(part, weight) for part in x.split(60)]))
    assert runner.ops.linear(x[:0], weight).shape == (0, 96)


def test_the_longest_context_still_has_a_graph() -> None:
    runner = make_runner()
    assert runner.graphs is not None
    assert runner.graphs.choose([Row([1], MAX_CONTEXT - 1, [0], GREEDY)], 0, False) == (1, MAX_CONTEXT)


def test_contexts_go_up_in_few_steps() -> None:
    assert graph_contexts(600) == [600] and graph_contexts(2048) == [2048]
    assert graph_contexts(40960) == [2048, 16384, 40960] and graph_contexts(131072) == [2048, 16384, 131072]


def test_short_contexts_run_in_graphs_with_small_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tables of so few blocks; afterwards long ones find their own tables, not what was left there."""
    monkeypatch.setattr("slotlab_kernels.graphs.SHORT_CONTEXT", 8)
    graphed, eager = make_runner(ops="torch"), make_runner(None, "torch")
    assert graphed.graphs is not None and graphed.graphs.contexts == [8, 20]
    keys = []
    for start in (17, 5, 7, 8, 18):
        rows = decodes(3, start)
        keys.append(graphed.graphs.choose(rows, 0, False))
        for runner in (graphed, eager):
            runner.step(prefills(rows))
        assert graphed.step(rows) == eager.step(rows)
        assert torch.equal(graphed.cache.all.view(torch.int32), eager.cache.all.view(torch.int32))
    assert keys == [(4, 20), (4, 8), (4, 8), (4, 20), (4, 20)]


def test_a_probe_sees_logits_without_a_graph() -> None:
    runner, seen = make_runner(), list[int]()
    runner.cache.reset()
    runner.probe = lambda index, logits: seen.append(index)
    runner.step(decodes(3))
    assert seen == [0, 1, 2] and runner.graphs is not None and runner.graphs.counts == {"probe": 1}


@pytest.mark.parametrize("late", (False, True))
def test_graphs_replay_with_two_steps_in_flight(late: bool) -> None:
    """The buffers are filled in the order of the steps, and tokens that were not read yet come from the pool."""
    runner, rows = make_runner(stream=delayed.DelayedStream() if late else None), decodes(5, 3)
    eager = make_runner(None)
    for one in (runner, eager):
        one.step(prefills(rows))
    expected, known = [], rows
    for ahead in range(6):
        expected.append(eager.step(known))
        known = [
            Row([token or 0], row.start + ahead + 1, row.blocks, GREEDY) for row, token in zip(rows, expected[-1], strict=True)
        ]
    first = [Row(row.ids, row.start, row.blocks, GREEDY, i) for i, row in enumerate(rows)]
    flight = [runner.launch(first)]
    for ahead in range(1, 6):
        flight.append(runner.launch([Row([LATEST], row.start + ahead, row.blocks, GREEDY, row.request) for row in first]))
    assert [launched.tokens() for launched in flight] == expected
    assert runner.graphs is not None and runner.graphs.counts["graph"] == 6
