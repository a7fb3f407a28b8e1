"""The pure parts of the comparison with other engines; they need none of them."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "engine_vs_peers"


def load(name: str) -> ModuleType:
    """A module of the experiment, under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"engine_vs_peers_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


compare, jobs = load("compare"), load("jobs")


def test_requests_are_the_same_for_a_seed_and_within_the_announced_lengths(tmp_path: Path) -> None:
    drawn = jobs.draw(0)
    assert drawn == jobs.draw(0) != jobs.draw(1) and len(drawn) == 64
    assert all(32 <= len(job.prompt) <= 255 and 16 <= job.output <= 127 for job in drawn)
    assert all(0 <= id < 49152 for job in drawn for id in job.prompt)
    jobs.write(drawn, tmp_path / "requests.json")
    assert jobs.read(tmp_path / "requests.json") == drawn


def test_a_ratio_is_the_geometric_mean_of_the_rounds() -> None:
    """By hand: logs ln 2 and ln 8, mean ln 4, standard error ln 2, t of one degree 12.706."""
    found = compare.paired_ratio([1.0, 2.0], [2.0, 16.0])
    assert found.ratio == pytest.approx(4.0)
    assert math.log(found.hi / 4.0) == pytest.approx(12.7062 * math.log(2.0), rel=1e-4)
    assert found.lo * found.hi == pytest.approx(16.0)


def test_a_machine_that_slows_everybody_alike_leaves_a_paired_ratio_alone() -> None:
    found = compare.paired_ratio([1.0, 3.0, 2.0], [1.5, 4.5, 3.0])
    assert found.lo == pytest.approx(1.5) and found.hi == pytest.approx(1.5)


def test_agreement_counts_requests_with_the_same_beginning() -> None:
    ours, theirs = [[1, 2, 3], [4, 5], [6]], [[1, 2, 9], [4, 5], [7]]
    assert [compare.agreement(ours, theirs, first) for first in (1, 2, 3)] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


def test_foreign_work_and_stolen_time_disturb_a_round_and_ones_own_does_not() -> None:
    before = compare.processors("cpu 100 0 50 900 0 0 0 0 0 0\n")
    alone, crowded = compare.Processors(before.busy + 20.0, 0.0), compare.Processors(before.busy + 25.0, 0.0)
    assert before == compare.Processors(1.5, 0.0)
    assert compare.disturbance(before, alone, own=19.8, wall=10.0) is None
    assert compare.disturbance(before, crowded, own=19.8, wall=10.0) == "others kept 0.52 cores busy"
    stolen = compare.Processors(before.busy + 20.0, 1.0)
    assert compare.disturbance(before, stolen, own=20.0, wall=10.0) == "the host took 0.10 cores away"


def test_a_contestant_warms_up_then_answers_each_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    protocol, calls = load("protocol"), []

    def serve() -> dict[str, Any]:
        calls.append(1)
        return {"outputs": [[len(calls)]]}

    said = tmp_path / "said"
    with said.open("w") as file:
        monkeypatch.setattr(os, "dup", lambda descriptor: os.open(said, os.O_WRONLY))
        monkeypatch.setattr(os, "dup2", lambda *descriptors: None)
        monkeypatch.setattr(sys, "stdin", io.StringIO("go\ngo\n"))
        protocol.answer(serve, {"torch": "x"})
        assert file.tell() == 0
    lines = said.read_text().splitlines()
    assert lines[0] == '{"ready": {"torch": "x"}}' and len(lines) == 3
    assert '"outputs": [[3]]' in lines[2] and '"cpu_seconds"' in lines[2]
