"""Which path of the C++ kernels runs: what the processor says, what the system grants, and what compiles."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from slotlab_kernels.ops import choose_ops, cpp_paths
from slotlab_kernels.ops.cpp_build import COMMON, SOURCES, Hung, Library
from slotlab_kernels.ops.cpp_cache import Unusable
from slotlab_kernels.ops.cpp_paths import AVX512, TARGETS, best, forget, library

CPU = torch.device("cpu")
AMX, BF16, AVX2, GENERIC = TARGETS
SAPPHIRE_RAPIDS = AVX512 | {"avx2", "fma", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
ZEN_4, ZEN_3, SKYLAKE_X = (
    SAPPHIRE_RAPIDS - TARGETS[AMX].needs | AVX512 | {"avx512_bf16"},
    frozenset(("avx2", "fma")),
    AVX512 | {"avx2", "fma"},
)


@pytest.fixture(autouse=True)
def _ask_again() -> Iterator[None]:
    forget()
    yield
    forget()


def pretend(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], refused: dict[str, Unusable] | None = None) -> list[str]:
    """A processor with these flags, where some paths fail; what was tried."""
    tried = []

    def build(name: str, flags: Sequence[str]) -> Library:
        tried.append(name)
        if refused and name in refused:
            raise refused[name]
        return Library(name, ctypes.CDLL(None), None)

    monkeypatch.setattr(cpp_paths, "processor_flags", lambda: flags)
    monkeypatch.setattr(cpp_paths, "build", build)
    return tried


@pytest.mark.parametrize(
    ("flags", "path"),
    (
        (SAPPHIRE_RAPIDS, AMX),
        (SAPPHIRE_RAPIDS - {"amx_bf16"}, BF16),
        (ZEN_4, BF16),
        (SKYLAKE_X, AVX2),
        (ZEN_3, AVX2),
        (ZEN_3 - {"fma"}, GENERIC),
        (frozenset(), GENERIC),
    ),
)
def test_the_processor_decides_and_nothing_else_is_compiled(
    monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], path: str
) -> None:
    tried = pretend(monkeypatch, flags)
    assert library("cpp").name == path and tried == [path] and best()[1] == {}


def test_a_system_that_refuses_amx_gets_the_next_path_and_the_reason_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, SAPPHIRE_RAPIDS, {AMX: Unusable("the system refuses what it needs: Operation not permitted")})
    found, remarks = best()
    assert found is not None and found.name == BF16
    assert remarks == {AMX: "cannot run here: the system refuses what it needs: Operation not permitted"}


def test_a_compiler_that_hangs_is_not_asked_again_for_the_next_path(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = pretend(monkeypatch, SAPPHIRE_RAPIDS, {AMX: Hung("g++ did not end in 240 s")})
    assert best() == (None, {"cpp": "cannot run here: g++ did not end in 240 s"}) and tried == [AMX]


def test_a_path_that_the_processor_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_paths, "processor_flags", lambda: ZEN_3)
    with pytest.raises(ValueError) as error:
        choose_ops(CPU, {"linear": AMX})
    expected = "op linear: implementation 'cpp (amx)' cannot run here: the processor has no amx_bf16, amx_tile, avx512_bf16"
    assert str(error.value).startswith(expected) and "\n" not in str(error.value)


def test_the_record_names_the_path_and_a_lesser_one_can_be_asked_for() -> None:
    ops = choose_ops(CPU, {"linear": "cpp", "silu_mul": GENERIC})
    assert ops.names["linear"] == library("cpp").name and ops.names["silu_mul"] == GENERIC
    assert {"cpp", "numba"}.isdisjoint({ops.names["linear"], ops.names["silu_mul"]})


@pytest.mark.parametrize("path", cpp_paths.here())
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_packed_product_gives_a_row_the_same_bytes_among_any_others(path: str, dtype: torch.dtype) -> None:
    """Also where outputs do not fill the last panel, inputs are few, and rows so many that panels are widened first."""
    ops, generator = choose_ops(CPU, {"linear": path}), torch.Generator().manual_seed(0)
    for inputs, outputs in ((576, 96), (24, 72), (2, 5)):
        x = torch.randn(61, inputs, generator=generator).to(dtype)
        weight = (torch.randn(outputs, inputs, generator=generator) / inputs**0.5).to(dtype)
        bias = torch.randn(outputs, generator=generator).to(dtype)
        packed = ops.pack(weight)
        together = ops.linear(x, packed, bias)
        assert all(torch.equal(ops.linear(x[:rows], packed, bias), together[:rows]) for rows in range(1, 31))
        exact = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
        tolerance = 1e-5 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(together.double(), exact, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(ops.linear(x, packed, bias, wide=True).double(), exact, rtol=1e-4, atol=1e-4)


def test_the_kernels_compile_for_aarch64(tmp_path: Path) -> None:
    """Compiled and linked, and not run."""
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("aarch64-linux-gnu-g++ is not installed")
    library = tmp_path / "ops.so"
    command = [compiler, *COMMON, *TARGETS[GENERIC].flags, "-O1", *map(str, sorted(SOURCES.glob("*.cpp"))), "-o", str(library)]
    subprocess.run(command, check=True)
    assert library.read_bytes()[18] == 183, "the ELF header names the machine: EM_AARCH64"
