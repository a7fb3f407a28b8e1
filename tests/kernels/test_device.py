import pytest
import torch

from slotlab_kernels.device import resolve_device, resolve_dtype

CPU = torch.device("cpu")


def test_auto_is_what_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto").type == kind
        assert resolve_device("cpu").type == "cpu"


def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"^device 'cuda' is not available .*; allowed: auto, cpu$"):
        resolve_device("cuda")
    with pytest.raises(ValueError, match=r"^device 'tpu' is unknown; allowed: auto, cpu, cuda$"):
        resolve_device("tpu")


@pytest.mark.parametrize(("bf16", "amx", "dtype"), ((True, False, "bf16"), (False, True, "bf16"), (False, False, "fp32")))
def test_auto_on_a_cpu_is_bf16_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, bf16: bool, amx: bool, dtype: str
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert resolve_dtype("auto", CPU) == resolve_dtype(dtype, CPU)


def test_dtypes_by_name() -> None:
    assert resolve_dtype("fp32", CPU) == torch.float32
    assert resolve_dtype("fp16", torch.device("cuda")) == torch.float16
    for name in ("fp16", "int8"):
        with pytest.raises(ValueError, match=f"^dtype '{name}' is not supported on cpu; allowed: auto, fp32, bf16$"):
            resolve_dtype(name, CPU)
