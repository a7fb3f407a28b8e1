import numpy as np
import pytest
import torch
from scipy import stats

from slotlab_kernels.ops import OPS, Ops, choose_ops
from slotlab_kernels.sampling import Sampling, stream_keys

CPU = torch.device("cpu")
implementations = pytest.mark.parametrize("implementation", ("torch", "numba"))


def ops_of(implementation: str) -> Ops:
    return choose_ops(CPU, dict.fromkeys(OPS, implementation))


def keys(samplings: list[Sampling], positions: list[int]) -> torch.Tensor:
    return torch.from_numpy(stream_keys(samplings, np.array(positions)))


def draw(ops: Ops, logits: torch.Tensor, temperature: float, seeds: torch.Tensor) -> torch.Tensor:
    return ops.sample(logits, torch.full((len(logits),), temperature), seeds)


@implementations
def test_temperature_zero_is_argmax_and_the_first_of_equals(implementation: str) -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0], [-5.0, -4.0, -3.0, -torch.inf]])
    assert draw(ops_of(implementation), logits, 0.0, torch.arange(3)).tolist() == [1, 0, 2]


@implementations
@pytest.mark.parametrize("temperature", (0.5, 1.0, 2.0))
def test_draws_follow_the_softmax(implementation: str, temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, 0.5, -1.0, 1.5, -2.0])
    draws = 20_000
    seeds = keys([Sampling(temperature, seed=3, request=r) for r in range(100)] * (draws // 100), list(range(draws)))
    tokens = draw(ops_of(implementation), logits.repeat(draws, 1), temperature, seeds)
    expected = (logits / temperature).softmax(-1).double().numpy()
    counts = np.bincount(tokens.numpy(), minlength=len(expected))
    assert stats.chisquare(counts, expected / expected.sum() * draws).pvalue > 0.01


def test_seed_request_and_position_each_change_the_stream() -> None:
    streams = [Sampling(1.0, seed, request) for seed in range(4) for request in range(4) for _ in range(4)]
    assert len(set(keys(streams, list(range(4)) * 16).tolist())) == 64


@implementations
def test_a_draw_does_not_depend_on_the_other_rows(implementation: str) -> None:
    ops, generator = ops_of(implementation), torch.Generator().manual_seed(0)
    logits = torch.randn(9, 1001, generator=generator)
    seeds = keys([Sampling(1.0, 5, request) for request in range(9)], list(range(9)))
    together = draw(ops, logits, 0.8, seeds)
    alone = [draw(ops, logits[row : row + 1], 0.8, seeds[row : row + 1]).item() for row in range(9)]
    assert together.tolist() == alone
    assert draw(ops, logits.flip(0), 0.8, seeds.flip(0)).tolist() == alone[::-1]


def test_both_implementations_draw_the_same() -> None:
    logits = torch.randn(64, 1001, generator=torch.Generator().manual_seed(1))
    seeds = keys([Sampling(1.0, 2, request) for request in range(64)], [7] * 64)
    assert draw(ops_of("torch"), logits, 1.3, seeds).tolist() == draw(ops_of("numba"), logits, 1.3, seeds).tolist()


@pytest.mark.parametrize("temperature", (-0.1, float("inf"), float("nan")))
def test_a_temperature_out_of_range_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be at least 0 and finite"):
        Sampling(temperature)
