import numpy as np
import pytest
import torch
from scipy import stats

from slotlab_kernels.ops import Ops, choose_ops, prefer_all, torch_ops
from slotlab_kernels.sampling import Sampling, stream_keys

CPU = torch.device("cpu")
implementations = pytest.mark.parametrize("implementation", ("torch", "numba"))


def ops_of(implementation: str) -> Ops:
    return choose_ops(CPU, prefer_all(implementation))


def keys(samplings: list[Sampling], positions: list[int]) -> torch.Tensor:
    return torch.from_numpy(stream_keys(samplings, np.array(positions)))


def draw(
    ops: Ops, logits: torch.Tensor, temperature: float, seeds: torch.Tensor, top_k: int = 0, top_p: float = 1.0
) -> torch.Tensor:
    rows = len(logits)
    return ops.sample(logits, torch.full((rows,), temperature), seeds, torch.full((rows,), top_k), torch.full((rows,), top_p))


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


@pytest.mark.parametrize(("top_k", "top_p"), ((0, 1.0), (7, 1.0), (0, 0.9), (50, 0.5)))
def test_both_implementations_draw_the_same(top_k: int, top_p: float) -> None:
    logits = torch.randn(64, 1001, generator=torch.Generator().manual_seed(1))
    seeds = keys([Sampling(1.0, 2, request) for request in range(64)], [7] * 64)
    one, other = (draw(ops_of(name), logits, 1.3, seeds, top_k, top_p) for name in ("torch", "numba"))
    assert one.tolist() == other.tolist()


@implementations
@pytest.mark.parametrize(
    ("top_k", "top_p", "drawn"),
    (
        (3, 1.0, {1, 3, 5}),  # of the three entries of 2.0 the lower two
        (0, 0.01, {1}),
        (0, 0.5, {1, 3}),  # the first alone has less than half
        (1, 1.0, {1}),
        (100, 1.0, set(range(8))),
        (2, 0.99, {1, 3}),  # the second share is of the two
    ),
)
def test_top_k_and_top_p_keep_the_head_of_the_sorted_entries(
    implementation: str, top_k: int, top_p: float, drawn: set[int]
) -> None:
    logits = torch.tensor([0.0, 3.0, -1.0, 2.0, 0.5, 2.0, 2.0, 0.2])
    seeds = keys([Sampling(2.0, 1, request) for request in range(400)], [3] * 400)
    assert set(draw(ops_of(implementation), logits.repeat(400, 1), 1.0, seeds, top_k, top_p).tolist()) == drawn


@implementations
@pytest.mark.parametrize("temperature", (0.0, 1.0))
@pytest.mark.parametrize(("top_k", "top_p"), ((0, 1.0), (4, 1.0), (0, 0.5), (10_000, 0.9)))
def test_rows_without_a_best_entry_still_give_a_valid_one(
    implementation: str, temperature: float, top_k: int, top_p: float
) -> None:
    """All NaN, all equal, all -inf, one finite entry (flashinfer#2455, #3774)."""
    logits = torch.stack([torch.full((11,), value) for value in (torch.nan, 1.0, -torch.inf, torch.nan)])
    logits[3, 7] = -3.0
    tokens = draw(ops_of(implementation), logits, temperature, torch.arange(4), top_k, top_p).tolist()
    assert all(0 <= token < 11 for token in tokens) and tokens[0] == 0 and tokens[3] == 7


@pytest.mark.parametrize(("option", "value"), (("top_k", -1), ("top_p", 0.0), ("top_p", 1.5)))
def test_a_top_out_of_range_is_refused(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option} must be"):
        Sampling(1.0, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", (-0.1, float("inf"), float("nan")))
def test_a_temperature_out_of_range_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be at least 0 and finite"):
        Sampling(temperature)


def test_the_noise_is_finite_at_both_ends_of_the_grid():
    """(2^24 - 1) + 0.5 is 2^24 in fp32: of 150,000 entries about one in 110 had infinite noise, and was drawn."""
    ends = torch_ops.unit(torch.tensor([0, 2**24 - 1]))
    assert ends[0] > 0.0 and ends[1] < 1.0
    assert torch.isfinite(-torch.log(-torch.log(ends))).all()
