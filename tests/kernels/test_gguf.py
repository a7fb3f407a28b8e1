import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import torch

from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.gguf_weights import load_gguf
from slotlab_kernels.llama import Llama
from slotlab_kernels.rope import LinearRope, Llama3Rope, RopeFactors, YarnRope, rope_periods
from slotlab_kernels.shape import TINY, LlamaShape, ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer
from slotlab_kernels.weights import build_llama, random_tensor

CPU = torch.device("cpu")
UNTIED = replace(TINY, tied=False)
QWEN2 = replace(TINY, qkv_bias=True, rope_theta=1e6)
QWEN3 = replace(TINY, qk_norm=True, head_dim=32, tied=False)
TOKENS = ["<|end|>", "<|tool|>", *(chr(0x100 + i) if i < 33 else chr(i) for i in range(127)), "ab", "abc", "Ġa"]
TOKENS += [f"<unused{i}>" for i in range(TINY.vocab - len(TOKENS))]


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp's converter does to q and k: row (half, pair) of a head becomes row (pair, half)."""
    rows = weight.shape[0] // heads
    order = [head * rows + half * (rows // 2) + pair for head in range(heads) for pair in range(rows // 2) for half in (0, 1)]
    return weight[order]


def architecture(shape: LlamaShape) -> str:
    return "qwen2" if shape.qkv_bias else "qwen3" if shape.qk_norm else "llama"


def tensors_of(model: Llama) -> dict[str, torch.Tensor]:
    """The weights as llama.cpp's converter writes them: q and k interleaved for the llama architecture alone."""
    shape = model.shape
    tensors = {"token_embd.weight": model.embedding_VC, "output_norm.weight": model.norm_C}
    if not shape.tied:
        tensors["output.weight"] = model.head_VC
    sizes = [heads * shape.head_dim for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
    for index, layer in enumerate(model.layers):
        q, k, v = torch.split(layer.qkv_HC, sizes)
        gate, up = layer.gate_up_FC.chunk(2)
        parts = {
            "attn_norm": layer.attention_norm_C,
            "attn_q": interleave(q, shape.heads) if architecture(shape) == "llama" else q,
            "attn_k": interleave(k, shape.kv_heads) if architecture(shape) == "llama" else k,
            "attn_v": v,
            "attn_output": layer.output_CH,
            "ffn_norm": layer.mlp_norm_C,
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": layer.down_CF,
        }
        if layer.qk_norms_D is not None:
            parts |= dict(zip(("attn_q_norm", "attn_k_norm"), layer.qk_norms_D, strict=True))
        tensors |= {f"blk.{index}.{name}.weight": part for name, part in parts.items()}
        if layer.qkv_bias_H is not None:
            biases = torch.split(layer.qkv_bias_H, sizes)
            tensors |= {f"blk.{index}.attn_{name}.bias": bias for name, bias in zip("qkv", biases, strict=True)}
    return tensors


def write_gguf(
    path: Path,
    shape: LlamaShape,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    change: dict[str, torch.Tensor | None] | None = None,
    metadata: dict[str, str | int | float] | None = None,
    raw: dict[str, tuple[npt.NDArray[np.uint8], gguf.GGMLQuantizationType]] | None = None,
) -> Llama:
    """A file of random weights, norms among them, as llama.cpp would convert them; `raw` tensors are in the file's own bytes."""
    model = build_llama(shape, lambda name, size: random_tensor(name, size, seed=5), CPU, torch.float32)
    writer = gguf.GGUFWriter(path, architecture(shape))
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.max_context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if shape.head_dim * shape.heads != shape.hidden:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 4] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(["a b", "ab c", "Ġ a"])
    writer.add_eos_token_id(0)
    for key, value in (metadata or {}).items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)]
        add(key, value)
    for name, (content, own) in (raw or {}).items():
        writer.add_tensor(name, content, raw_dtype=own)
    for name, tensor in (tensors_of(model) | (change or {})).items():
        if tensor is not None and name not in (raw or {}):
            plain = kind if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quantize(tensor.contiguous().numpy(), plain), raw_dtype=plain)
    close(writer)
    return model


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
