"""Matrix products as a foreign BLAS may compute them, planted in place of torch's: on any processor, wrong in the same way."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

_linear = F.linear
Product = Callable[..., torch.Tensor]


def by_rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Sums in an order that the number of rows decides."""
    return _in_parts(x, weight, bias, 2 + x.shape[-2] % 7 if x.dim() > 1 else 1)


def by_place(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Sums the last row in another order than those before it."""
    return torch.cat((_in_parts(x[..., :-1, :], weight, bias, 2), _in_parts(x[..., -1:, :], weight, bias, 3)), -2)


def _in_parts(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, parts: int) -> torch.Tensor:
    """Every output as so many sums, each rounded, added in the end."""
    out = torch.stack([_linear(x[..., part::parts], weight[:, part::parts]) for part in range(parts)])
    total = out[0]
    for part in out[1:]:
        total = total + part
    return total if bias is None else total + bias


def plant(monkeypatch: pytest.MonkeyPatch, product: Product) -> None:
    """In place of F.linear; all other products of matrices, which no op may need, fail."""
    monkeypatch.setattr(F, "linear", product)
    for owner, name in ((torch, "matmul"), (torch, "bmm"), (torch.Tensor, "matmul"), (torch.Tensor, "__matmul__")):
        monkeypatch.setattr(owner, name, _refused)


def _refused(*tensors: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a product whose shape may depend on the batch")
