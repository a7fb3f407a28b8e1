"""The machine code of every Triton kernel, compiled without a GPU: no register spills, wide loads, matrix instructions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from slotlab_kernels import aot
from slotlab_kernels.aot_figures import TARGETS, Figures

GOOD = Figures("attend", "9/3 heads of 64", "sm_90", 150, 0, 0, 24576, 8, {"HGMMA": 8})
KERNELS = [
    "add_rms_norm", "attend", "attend_split", "copy_blocks", "reduce_splits", "rms_norm", "rope_store", "sample", "silu_mul",
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_keeps_the_rules(script: Callable[..., str], target: str) -> None:
    said = script("compiled", target)
    last = said.splitlines()[-1]
    assert last.startswith("{"), said
    assert json.loads(last) == {"broken": [], "kernels": KERNELS}


@pytest.mark.parametrize(
    ("change", "broken"),
    (
        ({}, []),
        ({"spills": 2, "stack": 8}, ["2 spills, 8 bytes of stack"]),
        ({"shared": 102400}, ["102400 bytes of shared memory, more than 101376"]),
        ({"wide_loads": 0}, ["no 128-bit load"]),
        ({"matrix": {"HMMA": 16}}, ["no HGMMA"]),
        ({"target": "sm_80"}, ["no HMMA"]),
        ({"kernel": "silu_mul", "matrix": {}}, []),
    ),
)
def test_a_broken_rule_is_named(change: dict[str, object], broken: list[str]) -> None:
    assert aot.broken_rules(replace(GOOD, **change)) == broken


def test_the_command_fails_if_a_rule_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(aot, "compile_all", lambda target: [GOOD, replace(GOOD, spills=1)])
    assert aot.main(["--target", "sm_90"]) == 1
    assert "attend (9/3 heads of 64, sm_90): 1 spills, 0 bytes of stack" in capsys.readouterr().out
    monkeypatch.setattr(aot, "compile_all", lambda target: [GOOD])
    assert aot.main([]) == 0
