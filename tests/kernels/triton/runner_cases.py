"""A whole model on the Triton ops in the interpreter."""

from __future__ import annotations

import torch
from casebook import CPU, case

from slotlab_kernels.batch import Row
from slotlab_kernels.ops import choose_ops, prefer_all
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY, Sampling
from slotlab_kernels.shape import LlamaShape
from slotlab_kernels.weights import random_llama

SHAPE = LlamaShape(vocab=96, hidden=48, layers=2, heads=6, kv_heads=2, head_dim=16, intermediate=64, max_context=64)
DRAWN = Sampling(0.8, seed=3, request=1, top_k=20, top_p=0.9)


def tokens(implementation: str, implied: dict[str, object]) -> list[int]:
    """Two requests: chunks of one beside decodes of the other, a swap of blocks between, then both decode."""
    ops = choose_ops(CPU, prefer_all(implementation))
    runner = ModelRunner(random_llama(LlamaShape(**vars(SHAPE) | implied), CPU, torch.float32, seed=0), 8, 8, ops)
    runner.cache.all.fill_(torch.nan)
    first, second, out = [3, 5], [6, 1, 4], list[int]()
    prompt = [(7 * at + 3) % 96 for at in range(19)]

    def step(*rows: Row) -> None:
        out.extend(token for token in runner.step(rows) if token is not None)

    step(Row(prompt[:5], 0, first, DRAWN), Row(prompt[:10], 0, second, None))
    step(Row(out[-1:], 5, first, DRAWN), Row(prompt[10:], 10, second, GREEDY))
    kept = runner.cache.copy_out(second)
    runner.cache.all[:, :, second] = torch.nan
    second = [2, 7, 0]
    runner.cache.copy_in(kept, second)
    for at in range(2):
        step(Row(out[-2:-1], 6 + at, first, DRAWN), Row(out[-1:], 19 + at, second, GREEDY))
    return out


@case("llama")
@case("qwen3-mistral")
def a_model_emits_the_tokens_of_the_torch_ops(family: str) -> None:
    implied = {"llama": {}, "qwen3-mistral": {"qk_norm": True, "window": 9}}[family]
    got = tokens("triton", implied)
    assert got == tokens("torch", implied) and len(got) == 7, f"{got}"
