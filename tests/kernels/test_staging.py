"""Host memory that is copied late, and places for tokens on the device."""

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slotlab_kernels import staging
from slotlab_kernels.batch import Row, split
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.staging import CpuStream, Staging, TokenPool

delayed = SimpleNamespace(**run_path(str(Path(__file__).parent / "delayed.py")))
CPU = torch.device("cpu")


def parts(*sizes: int, first: int = 0) -> dict[str, np.ndarray]:
    return {str(index): np.arange(first, first + size) for index, size in enumerate(sizes)}


def test_parts_arrive_in_their_shapes() -> None:
    sent = parts(3, 0) | {"table": np.arange(6).reshape(2, 3)}
    flat = Staging(CPU, CpuStream()).send(sent)
    there = split(flat, sent)
    assert there["table"].tolist() == [[0, 1, 2], [3, 4, 5]] and there["0"].tolist() == [0, 1, 2] and there["1"].numel() == 0


def seen_by_the_device(sets: int, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """What each of seven steps reads; all are handed over before the first result is asked for."""
    monkeypatch.setattr(staging, "SETS", sets)
    monkeypatch.setattr(staging, "FIRST_SIZE", 4)
    stream = delayed.DelayedStream()
    sender, seen = Staging(CPU, stream), list[list[int]]()
    for step in range(7):
        flat = sender.send(parts(3 + 5 * step, first=10 * step))
        stream.run(lambda flat=flat: seen.append(flat.tolist()))
    stream.event().wait()
    return seen


@pytest.mark.parametrize("sets", (1, 2, 3))
def test_a_set_is_not_written_before_its_copy_has_ended(sets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """mini-sglang#103: the metadata of a step was overwritten by that of the next. Memory grows with the steps meanwhile."""
    assert seen_by_the_device(sets, monkeypatch) == [list(range(10 * s, 15 * s + 3)) for s in range(7)]


def test_without_the_wait_it_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: it shows that the delayed device can tell."""
    monkeypatch.setattr(delayed.DelayedStream, "event", lambda self: CpuStream())
    stream = delayed.DelayedStream()
    sender, seen = Staging(CPU, stream), list[list[int]]()
    for step in range(3):
        flat = sender.send(parts(2, first=10 * step))
        stream.run(lambda flat=flat: seen.append(flat.tolist()))
    delayed.DelayedEvent(stream, stream.given).wait()
    assert seen == [[20, 21], [10, 11], [20, 21]]


def test_places_are_given_once_and_again_when_free() -> None:
    pool = TokenPool(2, CPU)
    row = [Row([1], 0, [0], GREEDY, request) for request in range(4)]
    pool.admit([row[0], row[1], row[0], Row([1], 0, [0], None, 3), Row([1], 0, [0], GREEDY)])
    assert sorted(pool.places.values()) == [0, 1]
    with pytest.raises(AssertionError, match="2 requests have a token on the device"):
        pool.admit([row[2]])
    freed = pool.places[1]
    pool.forget(1)
    pool.admit([row[2]])
    assert pool.places[2] == freed
    pool.clear()
    pool.admit(row[2:])
    assert sorted(pool.places.values()) == [0, 1] and len(pool.tokens) == 3
