import importlib.util
import shutil
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from slotlab_kernels.ops import OPS, choose_ops, cpp_build, cpp_paths
from slotlab_kernels.ops.cpp_paths import forget

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
BLOCKS = {"gather_blocks": "torch", "scatter_blocks": "torch"}  # which only a GPU gains from
BEST = dict.fromkeys(OPS, cpp_paths.library("cpp").name) | BLOCKS | {"sample": "numba"}


def test_the_cpu_gets_cpp_where_it_compiles_and_numba_for_the_rest() -> None:
    assert choose_ops(CPU).names == BEST


def test_a_preference_holds_for_its_op_only() -> None:
    ops = choose_ops(CPU, {"rope_store": "torch"})
    assert ops.names == BEST | {"rope_store": "torch"}
    assert ops.rope_store.__module__.endswith("torch_ops") and ops.silu_mul.__module__.endswith("cpp_ops")


def test_weights_are_packed_for_the_linear_that_reads_them() -> None:
    weight, x = torch.arange(12.0).view(3, 4), torch.ones(1, 4)
    assert choose_ops(CPU, {"linear": "torch"}).pack(weight) is weight
    for name in ("cpp", "numba", "torch"):
        ops = choose_ops(CPU, {"linear": name})
        assert ops.linear(x, ops.pack(weight)).tolist() == [[6.0, 22.0, 38.0]] and ops.pack(weight).shape == weight.shape


@pytest.mark.parametrize(
    ("device", "prefer", "message"),
    (
        (CPU, {"softmax": "torch"}, "op 'softmax' is unknown; allowed: linear, rope_store, paged_attention"),
        (
            CPU,
            {"rope_store": "cutlass"},
            "op rope_store: implementation 'cutlass' is unknown; allowed: cpp, numba, triton, torch",
        ),
        (CPU, {"gather_blocks": "numba"}, "op gather_blocks: implementation 'numba' does not have it"),
        (CUDA, {"rope_store": "numba"}, "op rope_store: implementation 'numba' cannot run here: it is for cpu, not cuda"),
    ),
)
def test_what_cannot_run_is_refused_in_one_line(device: torch.device, prefer: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        choose_ops(device, prefer)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    find, which = importlib.util.find_spec, shutil.which

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in missing else find(name, package)

    forget()
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(shutil, "which", lambda name: None if name in missing else which(name))


@pytest.fixture(autouse=True)
def _ask_again_for_a_compiler() -> Iterator[None]:
    yield
    forget()


def test_without_a_compiler_numba_runs_and_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "g++")
    ops = choose_ops(CPU)
    assert ops.names == dict.fromkeys(OPS, "numba") | BLOCKS
    assert ops.remarks == {"cpp": "cannot run here: g++ is not installed"}


def test_without_numba_torch_runs_and_the_names_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "g++", "numba")
    assert choose_ops(CPU).names == dict.fromkeys(OPS, "torch")
    with pytest.raises(ValueError, match="'numba' cannot run here: numba is not installed"):
        choose_ops(CPU, {"rope_store": "numba"})


def test_kernels_that_do_not_compile_are_missing_with_the_first_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.cpp").write_text("int f() { return x; }")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cpp_build, "SOURCES", tmp_path)
    forget()
    why = cpp_paths.why_not("cpp")
    assert why is not None and "did not compile" in why and "was not declared" in why and "\n" not in why
