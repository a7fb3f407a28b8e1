"""A decoder of the Llama family: weights and the one forward pass, for prefill, chunk and decode, on CPU and CUDA.

Llama (Touvron et al., 2023), Mistral (Jiang et al., 2023), Qwen2 (Yang et al., 2024) and Qwen3 (Yang et al., 2025).
Shape suffixes: T tokens, C hidden, H heads of query, key and value together, D head dim, F intermediate, V vocabulary,
R rows of logits, P positions.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from slotlab_kernels.batch import Batch
from slotlab_kernels.kv_cache import KVCache
from slotlab_kernels.ops import Ops, Pack
from slotlab_kernels.rope import rope_periods
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
    qkv_bias_H: torch.Tensor | None = None
    qk_norms_D: tuple[torch.Tensor, torch.Tensor] | None = None  # of each head of query, of each head of key


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

    def packed(self, pack: Pack) -> "Llama":
        """This model with its matrices in the order that a `linear` wants: for `forward` with that one only."""
        layers = [
            replace(
                layer,
                qkv_HC=pack(layer.qkv_HC),
                output_CH=pack(layer.output_CH),
                gate_up_FC=pack(layer.gate_up_FC),
                down_CF=pack(layer.down_CF),
            )
            for layer in self.layers
        ]
        return Llama(self.shape, self.embedding_VC, layers, self.norm_C, pack(self.head_VC))

    def forward(self, batch: Batch, cache: KVCache, ops: Ops) -> torch.Tensor:
        """Computes the tokens of a batch, K and V into the cache; fp32 logits [R, V] of the rows that want them."""
        eps = self.shape.norm_eps
        residual_TC = F.embedding(batch.ids_T, self.embedding_VC)
        cos_TD, sin_TD = self._cos_PD[batch.positions_T], self._sin_PD[batch.positions_T]
        x_TC = ops.rms_norm(residual_TC, self.layers[0].attention_norm_C, eps)
        next_norms = [layer.attention_norm_C for layer in self.layers[1:]] + [self.norm_C]
        for layer, kv, next_norm_C in zip(self.layers, cache.layers, next_norms, strict=True):
            x_TC = self._attention(x_TC, layer, kv, cos_TD, sin_TD, batch, ops)
            x_TC = ops.add_rms_norm(x_TC, residual_TC, layer.mlp_norm_C, eps)
            x_TC = ops.linear(ops.silu_mul(ops.linear(x_TC, layer.gate_up_FC)), layer.down_CF)
            x_TC = ops.add_rms_norm(x_TC, residual_TC, next_norm_C, eps)
        return ops.linear(x_TC[batch.logits_R], self.head_VC, wide=True)

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
        qkv_THD = ops.linear(x_TC, layer.qkv_HC, layer.qkv_bias_H).view(-1, shape.qkv_heads, shape.head_dim)
        q_TND, k_THD, v_THD = qkv_THD.split_with_sizes((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        if layer.qk_norms_D is not None:
            q_norm_D, k_norm_D = layer.qk_norms_D
            q_TND, k_THD = ops.rms_norm(q_TND, q_norm_D, shape.norm_eps), ops.rms_norm(k_THD, k_norm_D, shape.norm_eps)
        ops.rope_store(q_TND, k_THD, v_THD, cos_TD, sin_TD, kv, batch.slots_T)
        return ops.linear(ops.paged_attention(q_TND, kv, batch, shape.window).flatten(1), layer.output_CH)


def _rope_tables(shape: LlamaShape, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [P, D/2] in fp32 of every position, computed in fp64 on the CPU: the same bits everywhere."""
    periods_D = torch.tensor(rope_periods(shape.rope_theta, shape.head_dim, shape.rope_scaling), dtype=torch.float64)
    angles_PD = torch.arange(shape.max_context, dtype=torch.float64)[:, None] / periods_D
    amplitude = shape.rope_scaling.amplitude if shape.rope_scaling else 1.0
    return (amplitude * angles_PD.cos()).float().to(device), (amplitude * angles_PD.sin()).float().to(device)
