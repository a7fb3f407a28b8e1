"""The script that will judge the GPU: everything but its CUDA calls runs here, on a CPU at toy size."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "experiments" / "gpu_check"
PARTS = ["1 ceilings", "2 kernels", "3 decode step", "4 prefill", "5 engine", "6 host", "7 correctness"]


def run(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "run.py"), "--device", "cpu", "--out", str(out), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    out = tmp_path_factory.mktemp("gpu_check") / "results.json"
    return run(out, "--dtype", "fp32", "--ops", "linear=torch"), json.loads(out.read_text())


def test_all_seven_parts_run_and_are_right(done: tuple[subprocess.CompletedProcess[str], dict[str, Any]]) -> None:
    process, document = done
    assert process.returncode == 0, process.stderr
    findings = document["findings"]
    assert sorted({one["part"] for one in findings}) == PARTS
    assert all(one["ok"] for one in findings if one["part"] == PARTS[-1])
    assert all(
        one["floor"] and math.isclose(one["share"], one["floor"] / one["value"]) for one in findings if one["part"] == PARTS[2]
    )
    assert not any(one["target"] for one in findings)
    assert document["facts"]["ops"]["linear"] == "torch" and document["facts"]["torch"] == torch.__version__
    assert "proves that the script runs, and nothing about speed" in process.stdout and PARTS[4] in process.stdout


def test_an_engine_on_a_cpu_gives_the_same_tokens_in_every_way(
    done: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    same = [one for one in done[1]["findings"] if one["name"].endswith("same tokens as the first")]
    assert len(same) == 4 and all(one["value"] == one["floor"] for one in same)


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules of the script, which import each other from its folder; forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    import correctness
    import engine
    import measure
    import sizes

    yield correctness, engine, measure, sizes
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_the_workload_is_the_public_one_and_its_floor_on_an_h200_too(modules: Any) -> None:
    """142,827 prompt and 133,966 output tokens, and 3.7 seconds, which others computed for Qwen3-0.6B."""
    _, engine, measure, sizes = modules
    lengths = sizes.workload(sizes.FULL)
    assert [sum(part) for part in zip(*lengths, strict=True)] == [142_827, 133_966]
    bench = measure.Bench(torch.device("cpu"), torch.bfloat16, sizes.FULL, measure.Timer(torch.device("cpu"), 1))
    bench.ceilings = measure.Ceilings(copy=4.3e12, read=4.0e12, flops=790e12)

    class Shaped:
        shape = sizes.QWEN3_06B

    assert engine.floor_seconds(bench, Shaped, lengths) == pytest.approx(3.68, rel=0.02)


@pytest.mark.parametrize(("worst", "ok"), ((0.0, True), (1e-3, True), (2e-3, False), (math.nan, False), (math.inf, False)))
def test_an_error_above_what_is_allowed_is_not_right_and_nan_never_is(modules: Any, worst: float, ok: bool) -> None:
    assert modules[2].checked("x", worst, 1e-3).ok is ok


def test_a_wrong_kernel_is_found(modules: Any) -> None:
    """The mutation: it shows that the checks can fail."""
    from dataclasses import replace

    from slotlab_kernels.ops import choose_ops

    correctness, _, measure, sizes = modules
    bench = measure.Bench(torch.device("cpu"), torch.float32, sizes.TOY, measure.Timer(torch.device("cpu"), 1))
    ops = choose_ops(bench.device, {"linear": "torch"})
    wrong = replace(ops, paged_attention=lambda q, cache, batch: ops.paged_attention(q, cache, batch, 250))
    assert (
        correctness._attention_error(bench, ops, (4, 2, 16))
        < 1e-5
        < 1e-3
        < correctness._attention_error(bench, wrong, (4, 2, 16))
    )
    unmasked = replace(ops, rope_store=lambda *args: ops.rope_store(*args[:-1], args[-1].clamp(min=31)))
    assert correctness._rope_error(bench, ops) < 1e-5 < 1e-3 < correctness._rope_error(bench, unmasked)
