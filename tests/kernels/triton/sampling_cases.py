"""Sampling in the interpreter, against sorting and plain arithmetic in float64."""

from __future__ import annotations

import math

import torch
from casebook import case, randn

from slotlab_kernels.ops import torch_ops, triton_ops
from slotlab_kernels.sampling import GOLDEN, MIX_1, MIX_2

NAN, INF = math.nan, math.inf


def gumbel(key: int, entry: int) -> float:
    mask = 2**64 - 1
    x = (key + (entry + 1) * GOLDEN) & mask
    x = ((x ^ (x >> 30)) * MIX_1) & mask
    x = ((x ^ (x >> 27)) * MIX_2) & mask
    x ^= x >> 31
    return -math.log(-math.log(((x >> 40) + 0.5) / 2**24))


def head(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[int]:
    """The entries that may be drawn, in falling order, equals by index."""
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    order = order[: top_k or None]
    weights = [math.exp((logits[v] - logits[order[0]]) / (temperature or 1.0)) for v in order]
    total, before = sum(weights), 0.0
    for rank, weight in enumerate(weights):
        if rank and top_p < 1.0 and before >= top_p * total:
            return order[:rank]
        before += weight
    return order


def drawn(logits: list[float], temperature: float, key: int, top_k: int, top_p: float) -> int:
    clean = [-INF if math.isnan(x) else x for x in logits]
    if max(clean) == -INF:
        return 0
    entries = sorted(head(clean, temperature, top_k, top_p))
    return max(entries, key=lambda v: clean[v] + (temperature * gumbel(key, v) if temperature else 0.0))


def sample(rows: list[list[float]], temperature: float, keys: list[int], top_k: list[int], top_p: list[float]) -> list[int]:
    shares = torch.tensor([[temperature, p] for p in top_p])  # strided, as a batch has them
    logits, k = torch.tensor(rows), torch.tensor(top_k)
    return triton_ops.sample(logits, shares[:, 0], torch.tensor(keys), k, shares[:, 1]).tolist()


def check(rows: list[list[float]], temperature: float, top_k: list[int], top_p: list[float]) -> None:
    keys = [(-1) ** r * (r * 0x9E3779B97F4A7C1 + 12345) for r in range(len(rows))]
    expected = [drawn(*each) for each in zip(rows, [temperature] * len(rows), keys, top_k, top_p, strict=True)]
    assert sample(rows, temperature, keys, top_k, top_p) == expected


@case(0.0)
@case(0.7)
@case(3.0)
def sample_is_the_best_of_logits_and_noise(temperature: float) -> None:
    check(randn(6, 2500).tolist(), temperature, [0] * 6, [1.0] * 6)


@case()
def sample_among_the_head() -> None:
    """k of 1, some, all and more; p small, middling and 1; both."""
    rows = (3 * randn(7, 1100, seed=1)).tolist()
    check(rows, 2.0, [1, 5, 1100, 5000, 0, 0, 40], [1.0, 1.0, 1.0, 1.0, 1e-6, 0.9, 0.5])


@case(4, 1.0)
@case(0, 0.5)
@case(5, 0.5)
def sample_among_equals_takes_the_first(top_k: int, top_p: float) -> None:
    """The head ends amid equals (flashinfer#3774), 0 and -0 among them."""
    key_of = {drawn([1.0] * 8, 1.0, key, top_k, top_p): key for key in range(99)}
    assert key_of.keys() == set(head([1.0] * 8, 1.0, top_k, top_p)) and len(key_of) < 8
    rows = len(key_of)
    assert sample([[1.0] * 8] * rows, 1.0, list(key_of.values()), [top_k] * rows, [top_p] * rows) == list(key_of)
    check([[0.0, -0.0, 2.0, 2.0, 1.0, 2.0, -0.0, 0.0]] * 2, 1.0, [top_k or 6] * 2, [top_p] * 2)


@case(0.0, 0, 1.0)
@case(1.0, 0, 1.0)
@case(1.0, 3, 0.9)
def sample_gives_a_valid_entry_of_any_row(temperature: float, top_k: int, top_p: float) -> None:
    """NaN, -inf, one-hot and equal rows (flashinfer#384, #2455)."""
    rows = [
        [NAN] * 5,
        [-INF] * 5,
        [NAN, 1.0, NAN, 3.0, 2.0],
        [-INF, -INF, 5.0, -INF, -INF],
        [NAN, -INF, NAN, NAN, -90.0],
        [0.0] * 5,
        [1e30, -1e30, 0.0, 1e30, NAN],
    ]
    check(rows, temperature, [top_k] * 7, [top_p] * 7)


@case()
def sample_equals_the_torch_ops() -> None:
    rows, spread = 12, torch.rand(2, 12, generator=torch.Generator().manual_seed(3))
    keys = torch.randint(-(2**62), 2**62, (rows,), generator=torch.Generator().manual_seed(4))
    how = (4 * randn(rows, 700), 2 * spread[0], keys, torch.arange(rows) % 4 * 9, spread[1].clamp(0.05))
    assert torch.equal(triton_ops.sample(*how), torch_ops.sample(*how))


@case()
def sample_has_no_infinite_noise() -> None:
    """The largest hash: 2^24 - 1 + 0.5 is 2^24 in fp32, and -ln(-ln 1) infinite, so any logit would lose to it."""
    x = 2**64 - 1  # then the mixer's steps backwards, for entry 0
    x ^= (x >> 31) ^ (x >> 62)
    x = x * pow(MIX_2, -1, 2**64) % 2**64
    x ^= (x >> 27) ^ (x >> 54)
    x = x * pow(MIX_1, -1, 2**64) % 2**64
    x ^= (x >> 30) ^ (x >> 60)
    key = (x - GOLDEN) % 2**64
    assert 17 < gumbel(key, 0) < 18
    assert sample([[-50.0, 0.0]], 1.0, [key - 2**64 if key >> 63 else key], [0], [1.0]) == [1]
