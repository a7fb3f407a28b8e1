"""Every model family against transformers: with the logits that make_parity.py kept, and anew where transformers is there."""

import json
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.folder import load_folder
from slotlab_kernels.ops import choose_ops, prefer_all
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY

CPU = torch.device("cpu")
parity = SimpleNamespace(**run_path(str(Path(__file__).parent / "make_parity.py")))


def paged_logits(folder: Path, implementation: str) -> torch.Tensor:
    """Logits [R, V] at the positions that were kept: a chunk up to each."""
    ops = choose_ops(CPU, None if implementation == "best" else prefer_all(implementation))
    runner = ModelRunner(load_folder(folder, CPU, torch.float32), 8, 8, ops)
    rows: list[torch.Tensor] = []
    runner.probe = lambda index, logits: rows.append(logits)
    start = 0
    for at in parity.ROWS:
        runner.step([Row(parity.IDS[start : at + 1], start, [5, 3, 0, 7, 1, 2], GREEDY)])
        start = at + 1
    return torch.stack(rows)


@pytest.mark.parametrize("implementation", ("best", "numba", "torch"))
@pytest.mark.parametrize("family", parity.FAMILIES)
def test_logits_are_those_that_transformers_computed(family: str, implementation: str, tmp_path: Path) -> None:
    parity.write_model(tmp_path, family)
    expected = torch.from_numpy(np.load(parity.EXPECTED)[family])
    assert expected.std() > 0.3
    torch.testing.assert_close(paged_logits(tmp_path, implementation), expected, atol=5e-5, rtol=0)


def tie_in_words(folder: Path) -> torch.Tensor:
    """A model with a head of its own whose config says that it has none; the logits are those of the head."""
    parity.write_model(folder, "llama2")
    (folder / "config.json").write_text(json.dumps(parity.TINY | {"tie_word_embeddings": True}))
    return torch.from_numpy(np.load(parity.EXPECTED)["llama2"])


def test_a_head_of_its_own_is_used_even_where_the_config_ties_it(tmp_path: Path) -> None:
    expected = tie_in_words(tmp_path)
    torch.testing.assert_close(paged_logits(tmp_path, "best"), expected, atol=5e-5, rtol=0)


def test_so_does_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    expected = tie_in_words(tmp_path)
    torch.testing.assert_close(parity.transformers_logits(tmp_path)[parity.ROWS], expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("family", parity.FAMILIES)
def test_transformers_still_computes_them(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    parity.write_model(tmp_path, family)
    expected = torch.from_numpy(np.load(parity.EXPECTED)[family])
    torch.testing.assert_close(parity.transformers_logits(tmp_path)[parity.ROWS], expected, atol=5e-5, rtol=0)
