"""Builds a Llama from named tensors, wherever they come from: a file or a random generator."""

import hashlib
from collections.abc import Callable

import numpy as np
import torch

from slotlab_kernels.llama import Layer, Llama
from slotlab_kernels.shape import LlamaShape

TensorSource = Callable[[str, tuple[int, ...]], torch.Tensor]
"""Gives the tensor of a Hugging Face name, in the shape that is asked for and any floating dtype; it may raise."""


def build_llama(shape: LlamaShape, source: TensorSource, device: torch.device, dtype: torch.dtype) -> Llama:
    """Asks the source for every weight of the model once and fuses those that are multiplied with the same input."""

    def get(name: str, *size: int) -> torch.Tensor:
        return source(f"{name}.weight", size).to(device, dtype, copy=True)  # never a view of a file

    hidden, wide = shape.hidden, shape.intermediate
    q_size, kv_size = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layers = []
    for index in range(shape.layers):
        block = f"model.layers.{index}"
        qkv = [
            get(f"{block}.self_attn.{name}_proj", size, hidden) for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size))
        ]
        layers.append(
            Layer(
                attention_norm_C=get(f"{block}.input_layernorm", hidden),
                qkv_HC=torch.cat(qkv),
                output_CH=get(f"{block}.self_attn.o_proj", hidden, q_size),
                mlp_norm_C=get(f"{block}.post_attention_layernorm", hidden),
                gate_up_FC=torch.cat([get(f"{block}.mlp.{name}_proj", wide, hidden) for name in ("gate", "up")]),
                down_CF=get(f"{block}.mlp.down_proj", hidden, wide),
            )
        )
    embedding = get("model.embed_tokens", shape.vocab, hidden)
    norm = get("model.norm", hidden)
    head = embedding if shape.tied else get("lm_head", shape.vocab, hidden)
    return Llama(shape, embedding, layers, norm, head)


def random_llama(shape: LlamaShape, device: torch.device, dtype: torch.dtype, seed: int) -> Llama:
    """A model with random weights of variance 1 / inputs, norms 1: for speed and for tests. The same on every host.

    The numbers are the raw bits of Philox (Salmon et al., SC 2011), whose stream numpy guarantees, scaled without rounding.
    """

    def source(name: str, size: tuple[int, ...]) -> torch.Tensor:
        if len(size) == 1:
            return torch.ones(size)
        key = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:16])
        count = size[0] * size[1]
        bits = np.random.Philox(key=key).random_raw(-(-count // 2)).view(np.uint32)[:count]
        centred = (bits >> 8).astype(np.float32) - np.float32(2**23 - 0.5)
        return torch.from_numpy(centred * np.float32((3 / size[1]) ** 0.5 / 2**23)).view(size)

    return build_llama(shape, source, device, dtype)
