"""Loads the weights of a GGUF file of the llama architecture, dequantised by the `gguf` package."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import torch

from slotlab_kernels.gguf_header import GGUFHeader, gguf_shape, read_gguf_header
from slotlab_kernels.llama import Llama
from slotlab_kernels.shape import LlamaShape, ModelFileError
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
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def load_gguf(path: str | Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """The model in a GGUF file. ModelFileError names the file and tensor that are wrong."""
    header = read_gguf_header(Path(path))
    shape = gguf_shape(header)
    size = header.path.stat().st_size
    used: set[str] = set()

    def source(name: str, expected: tuple[int, ...]) -> torch.Tensor:
        own = _gguf_name(name)
        used.add(own)
        weight = torch.from_numpy(_read(header, own, expected, size))
        return _unpermute(weight, shape) if own.endswith(("attn_q.weight", "attn_k.weight")) else weight

    model = build_llama(shape, source, device, dtype)
    for name in sorted(header.tensors.keys() - used):
        raise ModelFileError(f"{header.path}: tensor {name} is not known to this architecture")
    return model


def _gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{_NAMES[stem]}.weight"
    index, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{index}.{_NAMES[part]}.weight"


def _read(header: GGUFHeader, name: str, expected: tuple[int, ...], file_size: int) -> npt.NDArray[np.float32]:
    """One tensor in fp32."""
    if name not in header.tensors:
        raise ModelFileError(f"{header.path}: has no tensor {name}")
    tensor = header.tensors[name]
    if tensor.shape != expected:
        raise ModelFileError(f"{header.path}: tensor {name} has shape {list(tensor.shape)}, expected {list(expected)}")
    try:
        kind = gguf.GGMLQuantizationType(tensor.kind)
        rows = gguf.quant_shape_to_byte_shape(tensor.shape, kind)
        if tensor.offset + int(np.prod(rows)) > file_size:
            raise ModelFileError(f"{header.path}: is truncated within tensor {name}")
        raw = np.memmap(header.path, np.uint8, "r", tensor.offset, rows)
        return np.require(gguf.dequantize(np.asarray(raw), kind), np.float32, "W")
    except ModelFileError:
        raise
    except (ValueError, NotImplementedError) as error:
        raise ModelFileError(f"{header.path}: tensor {name} cannot be dequantised ({error})") from None


def _unpermute(weight_HC: torch.Tensor, shape: LlamaShape) -> torch.Tensor:
    """llama.cpp turns neighbouring pairs of a head, we turn its halves (as Hugging Face): so its rows are interleaved."""
    pairs = weight_HC.view(-1, shape.head_dim // 2, 2, shape.hidden)
    return pairs.transpose(1, 2).reshape(weight_HC.shape)
