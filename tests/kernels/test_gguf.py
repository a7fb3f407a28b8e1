import random
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.gguf_weights import load_gguf
from slotlab_kernels.rope import LinearRope, Llama3Rope, RopeFactors, YarnRope, rope_periods
from slotlab_kernels.shape import TINY, LlamaShape, ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer

CPU = torch.device("cpu")
UNTIED = replace(TINY, tied=False)
QWEN2 = replace(TINY, qkv_bias=True, rope_theta=1e6)
QWEN3 = replace(TINY, qk_norm=True, head_dim=32, tied=False)
files = SimpleNamespace(**run_path(str(Path(__file__).parent / "gguf_files.py")))
write_gguf, tensors_of, close = files.write_gguf, files.tensors_of, files.close


@pytest.mark.parametrize("shape", (TINY, UNTIED, QWEN2, QWEN3), ids=("tied", "untied", "qwen2", "qwen3"))
@pytest.mark.parametrize(("kind", "error"), (("F32", 0.0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 1e-2), ("Q4_1", 0.1)))
def test_a_gguf_loads_as_it_was_written(tmp_path: Path, shape: LlamaShape, kind: str, error: float) -> None:
    path = tmp_path / "model.gguf"
    saved = write_gguf(path, shape, gguf.GGMLQuantizationType[kind])
    assert read_shape(path) == shape
    loaded = load_gguf(path, CPU, torch.float32)
    for one, other in zip(tensors_of(loaded).items(), tensors_of(saved).items(), strict=True):
        assert one[0] == other[0]
        assert (one[1] - other[1]).norm() <= error * other[1].norm(), one[0]


def dequantised() -> list[str]:
    """The formats that the gguf package reads, those of 32 numbers a block left out: they are above."""
    return [kind.name for kind in gguf.quants._type_traits if gguf.GGML_QUANT_SIZES[kind][0] == 256]


@pytest.mark.parametrize("kind", dequantised())
def test_every_format_of_256_numbers_a_block_is_read(tmp_path: Path, kind: str) -> None:
    """Most files mix such formats, and llama.cpp alone can write them: random bytes are as good."""
    path, own = tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind]
    shape = replace(TINY, layers=1, hidden=256, head_dim=64)
    size = gguf.quant_shape_to_byte_shape((shape.intermediate, shape.hidden), own)
    content = np.random.default_rng(0).integers(0, 0x38, size, np.uint8)  # so that no scale among them is infinite or NaN
    write_gguf(path, shape, raw={"blk.0.ffn_up.weight": (content, own)})
    up = load_gguf(path, CPU, torch.float32).layers[0].gate_up_FC[shape.intermediate :]
    assert up.std() > 0 and torch.equal(up, torch.from_numpy(gguf.dequantize(content, own)))


def test_an_unknown_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    integers = torch.zeros(64, 64, dtype=torch.int8).numpy()
    write_gguf(path, TINY, raw={"blk.1.attn_v.weight": (integers, gguf.GGMLQuantizationType.I8)})
    assert message(path).startswith("tensor blk.1.attn_v.weight ")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    (
        ({"llama.attention.sliding_window": 20}, {"window": 20}),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.5}, {"rope_scaling": LinearRope(2.5)}),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 512,
            },
            {"rope_scaling": YarnRope(4.0, 512, YarnRope(4.0, 512).amplitude)},
        ),
    ),
)
def test_what_the_metadata_adds_is_read(tmp_path: Path, metadata: dict[str, str | int | float], expected: dict[str, Any]) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY, metadata=metadata)
    assert read_shape(path) == replace(TINY, **expected)


def test_rope_factors_in_the_file_are_those_of_llama_3(tmp_path: Path) -> None:
    """llama.cpp's converter works the divisors out and stores them as a tensor."""
    path, scaling = tmp_path / "model.gguf", Llama3Rope(8.0, 1.0, 4.0, 32)
    factors = scaling.divisors(TINY.rope_theta, TINY.head_dim)
    write_gguf(path, TINY, change={"rope_freqs.weight": torch.tensor(factors)})
    loaded = load_gguf(path, CPU, torch.float32)
    assert loaded.shape == replace(TINY, rope_scaling=RopeFactors(tuple(np.float32(factors).tolist())))
    assert rope_periods(1e4, 16, loaded.shape.rope_scaling) == pytest.approx(rope_periods(1e4, 16, scaling), rel=1e-6)


def message(path: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        load_gguf(path, CPU, torch.float32)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{path}: ")
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "expected"),
    (
        ({"blk.1.ffn_up.weight": None}, "has no tensor blk.1.ffn_up.weight"),
        ({"blk.1.ffn_up.weight": torch.zeros(5, 64)}, "tensor blk.1.ffn_up.weight has shape [5, 64], expected [128, 64]"),
        ({"blk.0.attn_q.bias": torch.zeros(64)}, "tensor blk.0.attn_q.bias is not known to this architecture"),
        ({"rope_freqs.weight": torch.ones(9)}, "tensor rope_freqs.weight has shape [9], expected [8]"),
        ({"rope_freqs.weight": torch.zeros(8)}, "the RoPE factors must be positive numbers"),
    ),
)
def test_a_tensor_that_is_missing_misshapen_or_too_many_is_named(
    tmp_path: Path, change: dict[str, torch.Tensor | None], expected: str
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY, change=change)
    assert message(path) == expected


@pytest.mark.parametrize(
    ("metadata", "expected"),
    (
        ({"llama.rope.scaling.type": "yarn"}, "has no field llama.rope.scaling.factor"),
        ({"llama.rope.scaling.type": "longrope"}, "rope_scaling 'longrope' is not supported; supported: none, linear, yarn"),
        ({"llama.rope.scaling.yarn_log_multiplier": 1.0}, "llama.rope.scaling.yarn_log_multiplier is not supported"),
        ({"llama.logit_scale": 2.0}, "llama.logit_scale is not supported"),
        ({"llama.rope.scale_linear": 2.0}, "llama.rope.scale_linear is not supported"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length must be the head size, 16"),
        ({"llama.expert_count": 8}, "a mixture of experts (llama.expert_count) is not supported"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count must be the head size, 16"),
    ),
)
def test_metadata_that_cannot_run_is_refused(tmp_path: Path, metadata: dict[str, str | int | float], expected: str) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY, metadata=metadata)
    assert message(path) == expected


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    close(gguf.GGUFWriter(path, "gemma3"))
    assert message(path) == "architecture 'gemma3' is not supported; supported: llama, qwen2, qwen3"


def test_a_missing_bias_or_norm_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for shape, name in ((QWEN2, "blk.1.attn_k.bias"), (QWEN3, "blk.0.attn_q_norm.weight")):
        write_gguf(path, shape, change={name: None})
        assert message(path) == f"has no tensor {name}"


def test_a_window_of_some_layers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, QWEN2, metadata={"qwen2.attention.sliding_window": 20})
    assert message(path) == "qwen2.attention.sliding_window is not supported"


def test_every_truncation_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY)
    content = path.read_bytes()
    path.write_bytes(content[:-200])
    assert message(path) == "is truncated within tensor blk.1.ffn_down.weight"
    path.write_bytes(b"")
    assert message(path) == "is empty"
    for end in (3, 4, 10, 30, 200, 2000, 9000):
        path.write_bytes(content[:end])
        assert "truncated" in message(path) or "is not a GGUF file" in message(path)
    path.write_bytes(b"GGUF" + (1).to_bytes(4, "little") + content[8:])
    assert message(path) == "GGUF version 1 is not supported; supported: 2, 3"
    path.unlink()
    assert message(path) == "cannot be read (No such file or directory)"


def test_a_damaged_byte_is_harmless_or_one_line(tmp_path: Path) -> None:
    path, rng = tmp_path / "model.gguf", random.Random(0)
    write_gguf(path, TINY)
    content = path.read_bytes()
    for _ in range(300):
        at = rng.randrange(min(len(content), 12_000))
        path.write_bytes(content[:at] + rng.randbytes(rng.randint(1, 4)) + content[at + 4 :])
        for read in (read_shape, load_tokenizer):
            try:
                read(path)
            except ModelFileError as error:
                assert "\n" not in str(error) and str(path) in str(error)
