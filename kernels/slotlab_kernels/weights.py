"""Builds a Llama from named tensors, wherever they come from: a file or a random generator."""

import hashlib
from collections.abc import Callable
from math import prod

import numpy as np
import torch

from slotlab_kernels.llama import Layer, Llama
from slotlab_kernels.shape import LlamaShape

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"

TensorSource = Callable[[str, tuple[int, ...]], torch.Tensor]
"""Gives the tensor of a Hugging Face name, in the shape that is asked for and any floating dtype; it may raise."""


def build_llama(shape: LlamaShape, source: TensorSource, device: torch.device, dtype: torch.dtype) -> Llama:
    """Asks the source for every weight of the model once and fuses those that are multiplied with the same input."""

    def get(name: str, *size: int) -> torch.Tensor:
        return source(name, size).to(device, dtype, copy=True)  # never a view of a file

    layers = [_layer(shape, f"model.layers.{index}", get) for index in range(shape.layers)]
    embedding = get(EMBEDDING, shape.vocab, shape.hidden)
    norm = get("model.norm.weight", shape.hidden)
    head = embedding if shape.tied else get(HEAD, shape.vocab, shape.hidden)
    return Llama(shape, embedding, layers, norm, head)


def _layer(shape: LlamaShape, block: str, get: Callable[..., torch.Tensor]) -> Layer:
    hidden, wide, attention = shape.hidden, shape.intermediate, f"{block}.self_attn"
    heads = {"q": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    qkv = [(f"{attention}.{name}_proj", count * shape.head_dim) for name, count in heads.items()]
    norms = [get(f"{attention}.{name}_norm.weight", shape.head_dim) for name in "qk"] if shape.qk_norm else None
    return Layer(
        attention_norm_C=get(f"{block}.input_layernorm.weight", hidden),
        qkv_HC=torch.cat([get(f"{name}.weight", size, hidden) for name, size in qkv]),
        output_CH=get(f"{attention}.o_proj.weight", hidden, shape.heads * shape.head_dim),
        mlp_norm_C=get(f"{block}.post_attention_layernorm.weight", hidden),
        gate_up_FC=torch.cat([get(f"{block}.mlp.{name}_proj.weight", wide, hidden) for name in ("gate", "up")]),
        down_CF=get(f"{block}.mlp.down_proj.weight", hidden, wide),
        qkv_bias_H=torch.cat([get(f"{name}.bias", size) for name, size in qkv]) if shape.qkv_bias else None,
        qk_norms_D=(norms[0], norms[1]) if norms else None,
    )


def random_llama(shape: LlamaShape, device: torch.device, dtype: torch.dtype, seed: int) -> Llama:
    """A model with random weights of variance 1 / inputs, norms 1: for speed and for tests. The same on every host.

    The numbers are the raw bits of Philox (Salmon et al., SC 2011), whose stream numpy guarantees, scaled without rounding.
    """

    def source(name: str, size: tuple[int, ...]) -> torch.Tensor:
        return torch.ones(size) if name.endswith("norm.weight") else random_tensor(name, size, seed)

    return build_llama(shape, source, device, dtype)


def random_tensor(name: str, size: tuple[int, ...], seed: int) -> torch.Tensor:
    """Uniform numbers of variance 1 / last size, from the seed and the name alone."""
    key, count = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:16]), prod(size)
    bits = np.random.Philox(key=key).random_raw(-(-count // 2)).view(np.uint32)[:count]
    centred = (bits >> 8).astype(np.float32) - np.float32(2**23 - 0.5)
    return torch.from_numpy(centred * np.float32((3 / size[-1]) ** 0.5 / 2**23)).view(size)
