"""The trial that an engine makes when it opens: it finds what makes a token's numbers depend on its batch, and says so."""

from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch

from slotlab_kernels.invariance import batch_dependence
from slotlab_kernels.ops import Ops, choose_ops, prefer_all, torch_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama

products = SimpleNamespace(**run_path(str(Path(__file__).parent / "products.py")))
CPU = torch.device("cpu")
dtypes = pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))


def found(ops: Ops, dtype: torch.dtype, num_blocks: int = 20, block_size: int = 16) -> str | None:
    runner = ModelRunner(random_llama(TINY, CPU, dtype, seed=0), num_blocks, block_size, ops)
    differs = batch_dependence(runner)
    assert runner.probe is None and not runner.cache.all.any(), "the trial left traces"
    return differs


@dtypes
@pytest.mark.parametrize("implementation", ("cpp", "numba", "torch"))
def test_nothing_is_found_in_our_own_ops(implementation: str, dtype: torch.dtype) -> None:
    assert found(choose_ops(CPU, prefer_all(implementation)), dtype) is None


@dtypes
def test_a_product_that_rounds_by_a_rows_place_is_found(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile of one shape does not help against that; ops that do not ask the library are not touched by it."""
    products.plant(monkeypatch, products.by_place)
    assert found(choose_ops(CPU, {"linear": "torch"}), dtype) == "in one step and in chunks and decodes"
    assert found(choose_ops(CPU, {"linear": "numba"}), dtype) is None


@dtypes
def test_a_product_that_rounds_by_the_number_of_rows_is_found_where_it_is_not_tiled(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    products.plant(monkeypatch, products.by_rows)
    ops = choose_ops(CPU, {"linear": "torch"})
    assert found(ops, dtype) is None
    assert found(replace(ops, linear=torch_ops._linear), dtype) is not None


@pytest.mark.parametrize(("num_blocks", "block_size"), ((1, 1), (1, 16), (2, 8), (3, 1), (1, 256)))
def test_a_small_cache_is_tried_with_what_fits(num_blocks: int, block_size: int) -> None:
    assert found(choose_ops(CPU), torch.float32, num_blocks, block_size) is None
