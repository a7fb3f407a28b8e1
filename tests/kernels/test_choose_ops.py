import importlib.util
from importlib.machinery import ModuleSpec

import pytest
import torch

from slotlab_kernels.ops import OPS, choose_ops

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_the_cpu_gets_numba_and_cuda_torch() -> None:
    assert choose_ops(CPU).names == dict.fromkeys(OPS, "numba")
    assert choose_ops(CUDA).names == dict.fromkeys(OPS, "torch")


def test_a_preference_holds_for_its_op_only() -> None:
    ops = choose_ops(CPU, {"rope": "torch"})
    assert ops.names == dict.fromkeys(OPS, "numba") | {"rope": "torch"}
    assert ops.rope.__module__.endswith("torch_ops") and ops.silu_mul.__module__.endswith("numba_ops")


@pytest.mark.parametrize(
    ("device", "prefer", "message"),
    (
        (CPU, {"softmax": "torch"}, "op 'softmax' is unknown; allowed: store_kv, paged_attention"),
        (CPU, {"rope": "cutlass"}, "op rope: implementation 'cutlass' is unknown; allowed: numba, torch"),
        (CUDA, {"rope": "numba"}, "op rope: implementation 'numba' cannot run here: it is for cpu, not cuda"),
    ),
)
def test_what_cannot_run_is_refused_in_one_line(device: torch.device, prefer: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as error:
        choose_ops(device, prefer)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_without_numba_torch_runs_and_the_names_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without_numba(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "numba" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_numba)
    assert choose_ops(CPU).names == dict.fromkeys(OPS, "torch")
    with pytest.raises(ValueError, match="'numba' cannot run here: numba is not installed"):
        choose_ops(CPU, {"rope": "numba"})
