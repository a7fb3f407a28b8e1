"""Answers of unknown length end where the model ends them: at any one of its end tokens."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from slotlab import Arrival, Model, Policy, Streams, UserError
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.record.recorder import Recorder
from slotlab.serve import serve
from slotlab.sources import source
from slotlab.workload import Point
from slotlab_kernels.shape import TINY
from slotlab_kernels.weights import random_llama
from slotlab_plugins.admission.chunk import Chunk
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.paged import Paged
from slotlab_plugins.preemption.victims import Newest

ARRIVALS = tuple(Arrival(0.0, prompt, 12, None) for prompt in (5, 9, 3))


class Ended(Model):
    """Random weights, and whatever ends."""

    def __init__(self, *end_ids: int) -> None:
        self.end_ids = frozenset(end_ids)

    def load(self, device: torch.device, dtype: torch.dtype) -> object:
        return random_llama(TINY, device, dtype, seed=0)

    def origin(self) -> str:
        return "random"

    def tokenizer(self) -> SimpleNamespace:
        return SimpleNamespace(end_ids=self.end_ids)


def answers(*end_ids: int) -> list[list[int]]:
    """The tokens of each request, all in one batch."""
    paged = Paged("cpu", 16, 32, dtype="fp32")
    paged.open(Ended(*end_ids))
    arrivals = paged.prepare(ARRIVALS)
    paged.begin(arrivals, Streams(0))
    recorder = Recorder()
    scheduler = Scheduler(BlockPool(32, 16), Policy(), Continuous(4, 64), Chunk(), Newest())
    outputs: dict[int, list[int]] = {}
    left, paged.left = paged.left, lambda req: (outputs.update({req.id: paged.output(req)}), left(req))[1]  # type: ignore
    serve(source(arrivals, Point()), scheduler, paged, paged.clock(), recorder)
    return [outputs[id] for id in range(len(arrivals))]


def until(answer: list[int], ends: set[int]) -> list[int]:
    """Up to the first end, itself included."""
    return answer[: next((at + 1 for at, token in enumerate(answer) if token in ends), len(answer))]


def test_any_end_token_ends_an_answer() -> None:
    whole = answers(TINY.vocab - 1)
    assert all(len(answer) == 12 for answer in whole)
    ends = {whole[0][3], whole[1][6]}
    cut = answers(*ends)
    assert cut == [until(answer, ends) for answer in whole]
    assert {cut[0][-1], cut[1][-1]} == ends, "each of both ended an answer"


@pytest.mark.parametrize("end_ids", ((), (TINY.vocab,)))
def test_answers_that_would_never_end_are_refused(end_ids: tuple[int, ...]) -> None:
    paged = Paged("cpu", 16, 32, dtype="fp32")
    paged.open(Ended(*end_ids))
    with pytest.raises(UserError, match="names no token that ends a text"):
        paged.prepare(ARRIVALS)
    paged.prepare([replace(arrival, output_tokens=3) for arrival in ARRIVALS])


def test_a_token_beyond_the_vocabulary_is_refused_before_serving() -> None:
    """A tokenizer with more tokens than the model has embeddings: an added one, or a file of another model."""
    tokenizer = SimpleNamespace(encode=lambda text: [3, TINY.vocab, 4], decode=lambda ids: "<new>", end_ids=frozenset((1,)))
    model = Ended()
    model.tokenizer = lambda: tokenizer  # type: ignore[method-assign]
    paged = Paged("cpu", 16, 32, dtype="fp32")
    paged.open(model)
    with pytest.raises(UserError) as error:
        paged.prepare([Arrival(0.0, 0, 12, None, text="a <new> b" * 100)])
    expected = f"has token {TINY.vocab} ('<new>'), and the model knows 0 to {TINY.vocab - 1}"
    assert expected in str(error.value) and len(str(error.value)) < 200
