"""Loads the weights of a GGUF file."""

from pathlib import Path

import torch

from slotlab_kernels.gguf_parts import read_gguf
from slotlab_kernels.gguf_shape import ROPE_FACTORS, gguf_shape
from slotlab_kernels.gguf_tensor import read_tensor
from slotlab_kernels.llama import Llama
from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.weights import build_llama

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def load_gguf(path: str | Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """The model in a GGUF file. ModelFileError names the file and tensor that are wrong."""
    header = read_gguf(Path(path))
    shape = gguf_shape(header)
    interleaved = ("attn_q.weight", "attn_k.weight") if header.get("general.architecture", str) == "llama" else ()
    used = {ROPE_FACTORS}

    def source(name: str, expected: tuple[int, ...]) -> torch.Tensor:
        own = _gguf_name(name)
        used.add(own)
        weight = torch.from_numpy(read_tensor(header, own, expected))
        return _unpermute(weight, shape.head_dim) if own.endswith(interleaved) else weight

    model = build_llama(shape, source, device, dtype)
    for name in sorted(header.tensors.keys() - used):
        raise ModelFileError(f"{header.tensors[name].path}: tensor {name} is not known to this architecture")
    return model


def _gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.{kind}"
    index, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{index}.{_NAMES[part]}.{kind}"


def _unpermute(weight_HC: torch.Tensor, head_dim: int) -> torch.Tensor:
    """In the llama architecture llama.cpp turns neighbouring pairs of a head, we turn its halves (as Hugging Face): so its
    rows are interleaved."""
    pairs = weight_HC.view(-1, head_dim // 2, 2, weight_HC.shape[1])
    return pairs.transpose(1, 2).reshape(weight_HC.shape)
