"""What an engine says of its own determinism when it opens: what is meant to be so and was found so, and no more."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest

from slotlab.lab.remarks import split
from slotlab.lab.report import print_facts
from slotlab_plugins.engines.paged import Paged
from slotlab_plugins.models.llama import Tiny
from slotlab_plugins.opening import fallbacks, invariance

products = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "kernels" / "products.py")))
TORCH = {"linear": "torch"}


@pytest.mark.parametrize("ops", ({}, {"linear": "numba"}, TORCH))
def test_on_a_cpu_the_tokens_are_those_of_any_batch(ops: dict[str, str]) -> None:
    facts = Paged("cpu", 16, 64, dtype="fp32", ops=ops).open(Tiny())
    assert facts["deterministic"] == "any batch" and "remark.not_deterministic" not in facts


@pytest.mark.parametrize("dtype", ("fp32", "bf16"))
def test_where_that_does_not_hold_the_record_and_one_line_say_so(
    dtype: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    products.plant(monkeypatch, products.by_place)
    monkeypatch.setattr("slotlab_kernels.roofline.measure_peaks", lambda device, dtype: None)  # it multiplies matrices
    facts = Paged("cpu", 16, 64, dtype=dtype, ops=TORCH).open(Tiny())
    assert facts["deterministic"] == "equal batches only"
    plain, remarks = split(facts)
    meta = {"engine": plain, "workload": {}, "remarks": remarks}
    print_facts(SimpleNamespace(place=SimpleNamespace(name="run"), meta=meta))  # type: ignore[arg-type]
    (line,) = [line for line in capsys.readouterr().out.replace("\n", " ").split("run: ") if "may depend" in line]
    assert line.startswith("tokens may depend on the policy here: computed in one step and in chunks and decodes, ")


@pytest.mark.parametrize(
    ("device", "asked", "foreign", "differs", "expected"),
    (
        ("cpu", False, False, None, "any batch"),
        ("cpu", False, True, None, "the batches tried at the start"),
        ("cpu", False, True, "in one step", "equal batches only"),
        ("cuda", False, False, None, "equal batches only"),
        ("cuda", True, False, None, "any batch"),
        ("cuda", True, False, "in one step", "equal batches only"),
        ("cuda", True, True, None, "the batches tried at the start"),
    ),
)
def test_no_more_is_claimed_than_is_meant_and_was_found(
    device: str, asked: bool, foreign: bool, differs: str | None, expected: str
) -> None:
    """On CUDA without `deterministic` a few equal bytes are luck, and unequal ones no news."""
    model = SimpleNamespace(device=SimpleNamespace(type=device), **({"ops": ()} if foreign else {}))
    told = invariance(Paged(deterministic=asked), SimpleNamespace(model=model), differs)  # type: ignore[arg-type]
    assert told["deterministic"] == expected
    assert ("remark.not_deterministic" in told) == (differs is not None)


@pytest.mark.parametrize(
    ("ran", "asked", "remarks", "said"),
    (
        ("cpp (avx2)", {}, {}, None),
        ("cpp (avx2)", {}, {"numba": "cannot run here: numba is not installed"}, None),  # it would not have been chosen
        ("cpp (avx2)", {}, {"cpp (avx2)": "compiled anew: the file was cut"}, None),
        ("cpp (avx2)", {}, {"cpp (amx)": "cannot run here: refused"}, "slower ops run, for cpp (amx) cannot run here: refused"),
        ("numba", {}, {"cpp": "cannot run here: no g++"}, "slower ops run, for cpp cannot run here: no g++"),
        ("numba", {"linear": "numba"}, {"cpp": "cannot run here: no g++"}, None),  # it was asked for
    ),
)
def test_slower_ops_than_planned_are_a_remark(ran: str, asked: dict[str, str], remarks: dict[str, str], said: str | None) -> None:
    ops: Any = SimpleNamespace(names={"linear": ran}, remarks=remarks)
    told = fallbacks(Paged(ops=asked), ops)
    assert told.pop("remark.fallback_ops", None) == said
    assert told == {f"ops.{name}": remark for name, remark in remarks.items()}
