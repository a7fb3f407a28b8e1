"""GGUF files of random models, as llama.cpp's converter would write them."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch

from slotlab_kernels.llama import Llama
from slotlab_kernels.shape import TINY, LlamaShape
from slotlab_kernels.weights import build_llama, random_tensor

CPU = torch.device("cpu")
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
    tensors_per_part: int = 0,
) -> Llama:
    """A file of random weights, norms among them, as llama.cpp would convert them; `raw` tensors are in the file's own bytes."""
    model = build_llama(shape, lambda name, size: random_tensor(name, size, seed=5), CPU, torch.float32)
    writer = gguf.GGUFWriter(path, architecture(shape), split_max_tensors=tensors_per_part)
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
