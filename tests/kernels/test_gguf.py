import random
from dataclasses import replace
from pathlib import Path

import gguf
import pytest
import torch

from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.gguf_weights import load_gguf
from slotlab_kernels.llama import Llama
from slotlab_kernels.shape import TINY, LlamaShape, ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
UNTIED = replace(TINY, tied=False)
TOKENS = ["<|end|>", "<|tool|>", *(chr(0x100 + i) if i < 33 else chr(i) for i in range(127)), "ab", "abc", "Ġa"]
TOKENS += [f"<unused{i}>" for i in range(TINY.vocab - len(TOKENS))]


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp's converter does to q and k: row (half, pair) of a head becomes row (pair, half)."""
    rows = weight.shape[0] // heads
    order = [head * rows + half * (rows // 2) + pair for head in range(heads) for pair in range(rows // 2) for half in (0, 1)]
    return weight[order]


def tensors_of(model: Llama) -> dict[str, torch.Tensor]:
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
            "attn_q": interleave(q, shape.heads),
            "attn_k": interleave(k, shape.kv_heads),
            "attn_v": v,
            "attn_output": layer.output_CH,
            "ffn_norm": layer.mlp_norm_C,
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": layer.down_CF,
        }
        tensors |= {f"blk.{index}.{name}.weight": part for name, part in parts.items()}
    return tensors


def write_gguf(
    path: Path,
    shape: LlamaShape,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    change: dict[str, torch.Tensor | None] | None = None,
    metadata: dict[str, str | int] | None = None,
    architecture: str = "llama",
) -> Llama:
    """A file of random weights, as llama.cpp would convert them."""
    model = random_llama(shape, CPU, torch.float32, seed=5)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.max_context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 4] + [1] * (len(TOKENS) - 2))
    writer.add_token_merges(["a b", "ab c", "Ġ a"])
    writer.add_eos_token_id(0)
    for key, value in (metadata or {}).items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    for name, tensor in (tensors_of(model) | (change or {})).items():
        if tensor is not None:
            plain = kind if tensor.ndim == 2 else gguf.GGMLQuantizationType.F32
            writer.add_tensor(name, gguf.quantize(tensor.contiguous().numpy(), plain), raw_dtype=plain)
    close(writer)
    return model


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("shape", (TINY, UNTIED), ids=("tied", "untied"))
@pytest.mark.parametrize(("kind", "error"), (("F32", 0.0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 1e-2), ("Q4_1", 0.1)))
def test_a_gguf_loads_as_it_was_written(tmp_path: Path, shape: LlamaShape, kind: str, error: float) -> None:
    path = tmp_path / "model.gguf"
    saved = write_gguf(path, shape, gguf.GGMLQuantizationType[kind])
    assert read_shape(path) == shape
    loaded = load_gguf(path, CPU, torch.float32)
    for one, other in zip(tensors_of(loaded).items(), tensors_of(saved).items(), strict=True):
        assert one[0] == other[0]
        assert (one[1] - other[1]).norm() <= error * other[1].norm(), one[0]


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
        ({"rope_freqs.weight": torch.ones(8)}, "rope_scaling 'none' is not supported yet; supported: none"),
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
        ({"llama.rope.scaling.type": "yarn"}, "rope_scaling 'yarn' is not supported yet; supported: none"),
        ({"llama.expert_count": 8}, "a mixture of experts (llama.expert_count) is not supported"),
        ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count must be the head size, 16"),
    ),
)
def test_metadata_that_cannot_run_is_refused(tmp_path: Path, metadata: dict[str, str | int], expected: str) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY, metadata=metadata)
    assert message(path) == expected


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY, architecture="qwen2")
    assert message(path) == "architecture 'qwen2' is not supported; supported: 'llama'"


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


def test_the_tokenizer_of_a_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, TINY)
    tokenizer = load_tokenizer(path)
    assert tokenizer.eos_id == 0
    text = "abc a12<|tool|>b<|end|>"
    ids = tokenizer.encode(text)
    assert [TOKENS[i] for i in ids] == ["abc", "Ġa", "1", "2", "<|tool|>", "b", "<|end|>"]
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(("model", "pre"), (("llama", "default"), ("gpt2", "qwen2")))
def test_another_kind_of_tokenizer_is_refused(tmp_path: Path, model: str, pre: str) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    close(writer)
    with pytest.raises(ModelFileError, match=f"{model}/{pre} is not supported; supported: gpt2/gpt-2, gpt2/smollm"):
        load_tokenizer(path)
