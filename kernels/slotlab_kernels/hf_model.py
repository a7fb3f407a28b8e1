"""A causal language model of transformers, computed by its own layers, with our paged attention and KV cache inside.

Slower than `Llama`: its norms, rotations and activations are many small operations. Transformers hands queries, keys and
values of each layer to a function of its AttentionInterface; ours stores and attends as any other model of ours does.
Shape suffixes: T tokens, N query heads, H key heads, D head dim, R rows of logits, V vocabulary.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from slotlab_kernels.batch import Batch
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.ops import Ops, Pack, torch_ops
from slotlab_kernels.shape import LlamaShape, ModelFileError

INTERFACE = "slotlab"
"""The name of our attention in transformers' registry."""


class Attention(Protocol):
    """What answers for the attention of one layer while a model runs."""

    def attend(
        self, layer: int, q_TND: torch.Tensor, k_THD: torch.Tensor, v_THD: torch.Tensor, scaling: float, window: int
    ) -> torch.Tensor:
        """The attention of new tokens, [T, N, D]."""


current: ContextVar[Attention] = ContextVar("attention")
"""Who attends in the forward pass that is running: transformers passes our function nothing of its own that would tell."""


def interface(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls, with [1, heads, T, D] each; ModelFileError for what we do not compute."""
    for name in ("softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise ModelFileError(f"its attention wants {name}, which is not supported")
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise ModelFileError("its attention is not the plain causal one")
    q_TND, k_THD, v_THD = (x[0].transpose(0, 1) for x in (query, key, value))
    scaling = q_TND.shape[-1] ** -0.5 if scaling is None else scaling
    out_TND = current.get().attend(module.layer_idx, q_TND, k_THD, v_THD, scaling, sliding_window or 0)
    return out_TND[None], None


@dataclass
class PagedStep:
    """Attends in the cache, for the rows of one batch."""

    batch: Batch
    cache: KVCache
    ops: Ops

    def attend(
        self, layer: int, q_TND: torch.Tensor, k_THD: torch.Tensor, v_THD: torch.Tensor, scaling: float, window: int
    ) -> torch.Tensor:
        dim, kv = q_TND.shape[-1], self.cache.layers[layer]
        q_TND = q_TND * (scaling * dim**0.5)  # the op divides by sqrt(D); the factor is 1 for most models
        flat_TD = torch.zeros(len(q_TND), dim // 2, device=q_TND.device)  # the model has turned them: by no angle here
        self.ops.rope_store(q_TND, k_THD.contiguous(), v_THD.contiguous(), flat_TD + 1.0, flat_TD, kv, self.batch.slots_T)
        return self.ops.paged_attention(q_TND, kv, self.batch, window)


class HFModel:
    """A model of transformers as the runner wants it. `shape` tells its sizes; `intermediate` counts what is neither
    attention nor embedding, as if it were a gated MLP, so that the cost of a step comes out right (of a mixture of experts:
    with all of them).

    Its linear layers multiply as the `linear` of our torch ops does: on a CPU a row's result does not depend on how many rows
    there are. Of whatever else its layers do (mixtures of experts choose their rows themselves) nothing is known.
    """

    ops = ("rope_store", "paged_attention", "sample", "gather_blocks", "scatter_blocks")  # those of ours that it calls

    def __init__(self, model: Any, shape: LlamaShape, device: torch.device, dtype: torch.dtype) -> None:
        self.model = model
        self.shape = shape
        self.device, self.dtype = device, dtype
        for layer in model.modules():
            if type(layer) is torch.nn.Linear:
                layer.forward = partial(_multiply, layer)  # type: ignore[method-assign]

    def packed(self, pack: Pack) -> "HFModel":
        """Itself: the layers of transformers multiply in their own way."""
        return self

    def forward(self, batch: Batch, cache: KVCache, ops: Ops) -> torch.Tensor:
        """Computes the tokens of a batch, K and V into the cache; fp32 logits [R, V] of the rows that want them."""
        token = current.set(PagedStep(batch, cache, ops))
        try:
            logits_TV = self.model(
                input_ids=batch.ids_T[None],
                position_ids=batch.positions_T[None],
                use_cache=False,
                logits_to_keep=batch.logits_R,
            ).logits[0]
        finally:
            current.reset(token)
        return logits_TV.float()  # type: ignore[no-any-return]


def _multiply(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return torch_ops.linear(x.flatten(0, -2), layer.weight, layer.bias).view(*x.shape[:-1], layer.out_features)
