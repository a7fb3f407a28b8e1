"""A Llama-family decoder: weights and the one forward pass, for prefill, chunk and decode, on CPU and CUDA.

Touvron et al., 2023. Shape suffixes: T tokens, C hidden, H heads of query, key and value together, D head dim, F
intermediate, V vocabulary, R rows of logits, P positions.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.ops import Ops
from slotlab_kernels.shape import LlamaShape


@dataclass(frozen=True)
class Layer:
    """The weights of one decoder layer. Those that read the same input are one matrix: fewer, larger multiplications."""

    attention_norm_C: torch.Tensor
    qkv_HC: torch.Tensor
    output_CH: torch.Tensor
    mlp_norm_C: torch.Tensor
    gate_up_FC: torch.Tensor
    down_CF: torch.Tensor


class Llama:
    """A model: its shape, its weights on one device in one dtype, and the forward pass."""

    def __init__(
        self, shape: LlamaShape, embedding_VC: torch.Tensor, layers: list[Layer], norm_C: torch.Tensor, head_VC: torch.Tensor
    ) -> None:
        self.shape = shape
        self.embedding_VC = embedding_VC
        self.layers = layers
        self.norm_C = norm_C
        self.head_VC = head_VC
        self.device, self.dtype = embedding_VC.device, embedding_VC.dtype
        self._cos_PD, self._sin_PD = _rope_tables(shape, self.device)

    def forward(self, batch: Batch, cache: KVCache, ops: Ops) -> torch.Tensor:
        """Computes the tokens of a batch, K and V into the cache; fp32 logits [R, V] of the rows that want them."""
        x_TC = F.embedding(batch.ids_T, self.embedding_VC)
        cos_TD, sin_TD = self._cos_PD[batch.positions_T], self._sin_PD[batch.positions_T]
        for layer, kv in zip(self.layers, cache.layers, strict=True):
            x_TC = x_TC + self._attention(x_TC, layer, kv, cos_TD, sin_TD, batch, ops)
            gate_up_TF = F.linear(ops.rms_norm(x_TC, layer.mlp_norm_C, self.shape.norm_eps), layer.gate_up_FC)
            x_TC = x_TC + F.linear(ops.silu_mul(gate_up_TF), layer.down_CF)
        x_RC = ops.rms_norm(x_TC[batch.logits_R], self.norm_C, self.shape.norm_eps)
        return F.linear(x_RC, self.head_VC)[: len(batch.logits_rows)].float()

    def _attention(
        self,
        x_TC: torch.Tensor,
        layer: Layer,
        kv: torch.Tensor,
        cos_TD: torch.Tensor,
        sin_TD: torch.Tensor,
        batch: Batch,
        ops: Ops,
    ) -> torch.Tensor:
        shape = self.shape
        qkv_TH = F.linear(ops.rms_norm(x_TC, layer.attention_norm_C, shape.norm_eps), layer.qkv_HC)
        qkv_THD = qkv_TH.view(-1, shape.qkv_heads, shape.head_dim)
        values = shape.heads + shape.kv_heads
        ops.rope(qkv_THD[:, :values], cos_TD, sin_TD)
        ops.store_kv(qkv_THD[:, shape.heads : values], qkv_THD[:, values:], kv, batch.slots_T)
        return F.linear(ops.paged_attention(qkv_THD[:, : shape.heads], kv, batch).flatten(1), layer.output_CH)


def _rope_tables(shape: LlamaShape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [P, D/2] in fp32 of every position, computed in fp64 on the CPU: the same bits everywhere."""
    exponents_D = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles_PD = torch.arange(shape.max_context, dtype=torch.float64)[:, None] / shape.rope_theta**exponents_D
    return angles_PD.cos().float().to(device), angles_PD.sin().float().to(device)
