"""The paged, packed forward pass against a dense one of a single sequence, and against transformers where it is there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.folder import load_folder
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import choose_ops, prefer_all
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY, LlamaShape
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
SHAPES = (TINY, replace(TINY, heads=9, kv_heads=3, head_dim=24, hidden=72, tied=False, rope_theta=500.0))
IDS = [(7 * i * i + 3) % TINY.vocab for i in range(45)]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


def rotate(x_TND: torch.Tensor, shape: LlamaShape) -> torch.Tensor:
    """RoPE by complex numbers."""
    half = shape.head_dim // 2
    speed = shape.rope_theta ** -(torch.arange(half).double() / half)
    angle = torch.outer(torch.arange(len(x_TND)).double(), speed)[:, None]
    turned = torch.complex(x_TND[..., :half], x_TND[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((turned.real, turned.imag), -1)


def dense_logits(model: Llama, ids: list[int]) -> torch.Tensor:
    """Logits [T, V] in float64: no cache, no blocks, one sequence, a causal mask."""
    shape, n, k, d = model.shape, model.shape.heads, model.shape.kv_heads, model.shape.head_dim
    x = model.embedding_VC[ids].double()
    mask = torch.full((len(ids), len(ids)), -torch.inf).triu(1).double()
    for layer in model.layers:
        qkv = (norm(x, layer.attention_norm_C, shape.norm_eps) @ layer.qkv_HC.double().T).view(len(ids), n + 2 * k, d)
        query, key = rotate(qkv[:, :n], shape), rotate(qkv[:, n : n + k], shape).repeat_interleave(n // k, 1)
        value = qkv[:, n + k :].repeat_interleave(n // k, 1)
        weights = (torch.einsum("qnd,knd->nqk", query, key) / d**0.5 + mask).softmax(-1)
        x = x + torch.einsum("nqk,knd->qnd", weights, value).flatten(1) @ layer.output_CH.double().T
        gate, up = (norm(x, layer.mlp_norm_C, shape.norm_eps) @ layer.gate_up_FC.double().T).chunk(2, -1)
        x = x + (gate * gate.sigmoid() * up) @ layer.down_CF.double().T
    return norm(x, model.norm_C, shape.norm_eps) @ model.head_VC.double().T


def paged_logits(model: Llama, ids: list[int], implementation: str) -> torch.Tensor:
    """Logits [T, V] by decode steps of one token, after a first chunk of 20."""
    runner = ModelRunner(model, 16, 8, choose_ops(CPU, prefer_all(implementation)))
    rows: list[torch.Tensor] = []
    runner.probe = lambda index, logits: rows.append(logits)
    blocks = [5, 3, 9, 0, 12, 7]
    runner.step([Row(ids[:20], 0, blocks, GREEDY)])
    for at in range(20, len(ids)):
        runner.step([Row(ids[at : at + 1], at, blocks, GREEDY)])
    return torch.stack(rows)


@pytest.mark.parametrize("implementation", ("cpp", "numba", "torch"))
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_agree_with_a_dense_forward(shape: LlamaShape, implementation: str) -> None:
    model = random_llama(shape, CPU, torch.float32, seed=3)
    paged, dense = paged_logits(model, IDS, implementation), dense_logits(model, IDS)[19:]
    assert dense.std() > 0.5
    torch.testing.assert_close(paged.double(), dense, atol=1e-4, rtol=0)


def test_bf16_is_near_fp32() -> None:
    model = random_llama(TINY, CPU, torch.bfloat16, seed=3)
    error = (paged_logits(model, IDS, "numba") - dense_logits(model, IDS)[19:]).abs()
    assert error.mean() < 0.02 and error.max() < 0.1


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_agree_with_transformers(shape: LlamaShape, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        rms_norm_eps=shape.norm_eps,
        rope_theta=shape.rope_theta,
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = theirs(torch.tensor([IDS])).logits[0, 19:]
    model = load_folder(tmp_path, CPU, torch.float32)
    torch.testing.assert_close(paged_logits(model, IDS, "numba"), expected, atol=1e-3, rtol=0)


def test_random_weights_are_the_same_everywhere() -> None:
    """Pinned bits: numpy guarantees the stream of Philox, and nothing after it rounds."""
    model = random_llama(TINY, CPU, torch.float32, seed=0)
    assert model.embedding_VC[0, :3].tolist() == [0.007875105366110802, 0.04012423753738403, 0.07359563559293747]
    again, other = random_llama(TINY, CPU, torch.float32, seed=0), random_llama(TINY, CPU, torch.float32, seed=1)
    assert torch.equal(model.layers[1].down_CF, again.layers[1].down_CF)
    assert not torch.equal(model.layers[1].down_CF, other.layers[1].down_CF)
    assert model.layers[0].down_CF.std() == pytest.approx(TINY.intermediate**-0.5, rel=0.05)
