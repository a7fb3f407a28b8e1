"""Which path of the C++ kernels runs: what the processor says, what the system grants, and what compiles."""

import ctypes
from collections.abc import Iterator, Sequence

import pytest
import torch

from slotlab_kernels.ops import choose_ops, cpp_paths
from slotlab_kernels.ops.cpp_build import Hung, Library
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
