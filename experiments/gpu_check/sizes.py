"""How large everything is: on a GPU as in the question, on a CPU only as large as shows that it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from slotlab_kernels.shape import SMOLLM2_135M, TINY, LlamaShape

QWEN3_06B = LlamaShape(
    vocab=151936, hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, intermediate=3072,
    rope_theta=1e6, norm_eps=1e-6, max_context=4096, qk_norm=True,
)  # fmt: skip
"""Its sizes, but for the context: 40960 in the original."""
LLAMA_1B = LlamaShape(
    vocab=128256, hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, intermediate=8192, rope_theta=5e5, max_context=4096,
)  # fmt: skip
"""Llama-3.2-1B without its rope scaling, and with a shorter context."""


@dataclass(frozen=True)
class Sizes:
    """Of all seven parts. `heads`: (query heads, key heads, head dim)."""

    repeats: int = 20
    copy_bytes: int = 16_000_000_000  # read and written
    matmul: int = 8192
    heads: tuple[tuple[int, int, int], ...] = ((9, 3, 64), (16, 8, 128), (32, 8, 128))
    rows: tuple[int, ...] = (1, 8, 64, 256)
    contexts: tuple[int, ...] = (512, 4096, 32768)
    prompts: tuple[int, ...] = (2048, 8192)
    tokens: int = 8192  # of the small kernels
    model: LlamaShape = QWEN3_06B
    wide: LlamaShape = LLAMA_1B
    decode_rows: tuple[int, ...] = (1, 8, 32, 128, 256)
    decode_context: int = 800
    prefills: tuple[int, ...] = (2048, 8192, 16384)
    piece: int = 2048  # tokens of a row of those
    requests: int = 256
    shortest: int = 100  # of prompts and of outputs
    longest: int = 1024
    max_tokens: int = 8192  # of a step
    block_sizes: tuple[int, ...] = (16, 64, 256)
    giant: int = (1 << 31) + (1 << 24)  # elements of the cache that is too large for 32-bit offsets


FULL = Sizes()
TOY = replace(
    FULL, repeats=3, copy_bytes=1 << 22, matmul=128, heads=((4, 2, 16),), rows=(1, 3), contexts=(40,), prompts=(48,), tokens=64,
    model=TINY, wide=replace(SMOLLM2_135M, layers=1, vocab=512), decode_rows=(1, 4), decode_context=30, prefills=(64,), piece=32,
    requests=6, shortest=4, longest=12, max_tokens=32, block_sizes=(16, 8), giant=1 << 16,
)  # fmt: skip


def workload(sizes: Sizes) -> list[tuple[int, int]]:
    """(prompt tokens, output tokens) of each request: those of nano-vllm's `bench.py`, drawn in its order from its seed."""
    draw = Random(0).randint
    prompts = []
    for _ in range(sizes.requests):
        prompts.append(draw(sizes.shortest, sizes.longest))
        for _ in range(prompts[-1]):
            draw(0, 10_000)
    return [(prompt, draw(sizes.shortest, sizes.longest)) for prompt in prompts]
