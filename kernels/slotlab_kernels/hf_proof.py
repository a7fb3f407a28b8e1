"""Looks at what the layers of a model of transformers ask our attention for, and proves that it gives them what they want."""

from typing import Any

import torch

from slotlab_kernels.batch import Batch, Limits, Row
from slotlab_kernels.hf_model import INTERFACE, HFModel, current
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import LlamaShape, ModelFileError

_ERRORS = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""How far logits may be from the model's own, relative to their size. Rounding alone gave 1e-6 in fp32 and 0.013 in bf16 with
two layers of 25 architectures; deeper models round more."""


class _Look:
    """Attends to nothing, and notes what the layers ask for."""

    def __init__(self) -> None:
        self.sizes: dict[int, tuple[int, int, int]] = {}
        self.windows: dict[int, int] = {}

    def attend(
        self, layer: int, q_TND: torch.Tensor, k_THD: torch.Tensor, v_THD: torch.Tensor, scaling: float, window: int
    ) -> torch.Tensor:
        if layer in self.sizes or k_THD.shape != v_THD.shape or q_TND.shape[-1] != k_THD.shape[-1]:
            raise ModelFileError("its layers share K and V, or have heads of unequal sizes")
        self.sizes[layer] = q_TND.shape[1], k_THD.shape[1], k_THD.shape[2]
        self.windows[layer] = window
        return torch.zeros_like(q_TND)


@torch.inference_mode()
def prove(model: Any, positions: int, device: torch.device, dtype: torch.dtype) -> HFModel:
    """The model, now with our attention, after that gave the logits of the model's own on two short prompts.

    ModelFileError says what its layers want that is not there, or by how much the logits differ.
    """
    config = model.config.get_text_config()
    prompts = [[(7 * i + 3) % config.vocab_size for i in range(length)] for length in (13, 5)]
    own = torch.stack([model(torch.tensor([prompt], device=device), use_cache=False).logits[0, -1] for prompt in prompts])
    model.set_attn_implementation(INTERFACE)
    served = HFModel(model, _look(model, positions, device), device, dtype)
    error = (_paged(served, prompts) - own.float()).norm() / own.float().norm()
    if not error < _ERRORS[dtype]:
        raise ModelFileError(f"with our attention its logits differ from its own by {error:.2g} of their size")
    return served


def _look(model: Any, positions: int, device: torch.device) -> LlamaShape:
    """The shape, from what the layers ask our attention for."""
    config, look = model.config.get_text_config(), _Look()
    token = current.set(look)
    try:
        model(torch.tensor([[1]], device=device), position_ids=torch.tensor([[0]], device=device), use_cache=False)
    finally:
        current.reset(token)
    _check_layers(config, look)
    heads, kv_heads, head_dim = look.sizes[0]
    attention = config.hidden_size * head_dim * (2 * heads + 2 * kv_heads)
    outside = {id(m.weight) for m in (model.get_input_embeddings(), model.get_output_embeddings()) if m is not None}
    rest = sum(p.numel() for p in model.parameters() if p.ndim > 1 and id(p) not in outside) // len(look.sizes) - attention
    return LlamaShape(
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        layers=len(look.sizes),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=max(1, rest // (3 * config.hidden_size)),
        max_context=positions,
    )


def _check_layers(config: Any, look: _Look) -> None:
    """Every layer must have come by, all alike, and with the window that the config gives it."""
    if sorted(look.sizes) != list(range(config.num_hidden_layers)) or len(set(look.sizes.values())) != 1:
        raise ModelFileError("not all of its layers attend through the interface, with heads of one size")
    kinds = getattr(config, "layer_types", None)
    for layer, window in look.windows.items():
        slides = kinds[layer] == "sliding_attention" if kinds else getattr(config, "sliding_window", None) is not None
        if slides != (window > 0):
            raise ModelFileError("the sliding window of its layers does not reach the interface")


def _paged(model: HFModel, prompts: list[list[int]]) -> torch.Tensor:
    """Logits [2, V]: the first prompt in two chunks, the second beside its last one."""
    ops, shape = choose_ops(model.device), model.shape
    cache, limits = KVCache(shape, 3, 8, model.device, model.dtype, ops), Limits(8, 3, shape.vocab, shape.max_context)
    long, short = prompts
    model.forward(Batch.pack([Row(long[:4], 0, [2], GREEDY)], limits, model.device), cache, ops)
    rows = [Row(long[4:], 4, [2, 0], GREEDY), Row(short, 0, [1], GREEDY)]
    return model.forward(Batch.pack(rows, limits, model.device), cache, ops)
