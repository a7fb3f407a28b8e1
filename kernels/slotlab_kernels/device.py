"""Which device and which number format a model runs on."""

import torch

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """The device for `auto` (CUDA where there is one), `cpu` or `cuda`. ValueError if it is unknown or not there."""
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device {name!r} is unknown; allowed: auto, cpu, cuda")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ValueError(f"device 'cuda' is not available to torch {torch.__version__} on this machine; allowed: auto, cpu")
    return torch.device("cuda" if name != "cpu" and there else "cpu")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for `auto`, `fp32`, `bf16` or `fp16`. ValueError if it is unknown or the device cannot compute in it.

    `auto` is bf16 where the hardware multiplies it (on a CPU: AVX512-BF16 or AMX), else fp16 on CUDA and fp32 on a CPU.
    """
    on_cpu = device.type == "cpu"
    if name == "auto":
        if on_cpu:
            return torch.bfloat16 if _cpu_multiplies_bf16() else torch.float32
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if name not in _DTYPES or (on_cpu and name == "fp16"):
        allowed = "auto, fp32, bf16" + ("" if on_cpu else ", fp16")
        raise ValueError(f"dtype {name!r} is not supported on {device.type}; allowed: {allowed}")
    return _DTYPES[name]


def _cpu_multiplies_bf16() -> bool:
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
