"""Steps that are launched before the tokens of those before them are read."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
import torch

from slotlab_kernels.batch import LATEST, Row
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.runner import Launched, ModelRunner
from slotlab_kernels.sampling import GREEDY, Sampling
from slotlab_kernels.shape import TINY
from slotlab_kernels.staging import CpuStream, Stream
from slotlab_kernels.weights import random_llama

delayed = SimpleNamespace(**run_path(str(Path(__file__).parent / "delayed.py")))
CPU = torch.device("cpu")
MODEL = random_llama(TINY, CPU, torch.float32, seed=0)
BLOCK_SIZE, NUM_BLOCKS = 4, 40
STREAMS = {"at once": CpuStream, "delayed": delayed.DelayedStream}


def make_runner(stream: Stream) -> ModelRunner:
    return ModelRunner(MODEL, NUM_BLOCKS, BLOCK_SIZE, choose_ops(CPU, {"linear": "torch"}), stream=stream)


@dataclass(eq=False)
class Asker:
    """A request: its prompt, the tokens that the host has read, and how many more it knows to be coming."""

    id: int
    prompt: list[int]
    wanted: int
    sampling: Sampling
    read: list[int] = field(default_factory=list)
    coming: int = 0
    computed: int = 0
    blocks: list[int] = field(default_factory=list)

    def row(self, count: int, pool: list[int]) -> Row:
        """Computes its next `count` tokens, at most all that there are."""
        ids = [*self.prompt, *self.read, *[LATEST] * self.coming]
        end = min(self.computed + count, len(ids))
        while len(self.blocks) * BLOCK_SIZE < end:
            self.blocks.append(pool.pop())
        row = Row(ids[self.computed : end], self.computed, list(self.blocks), self.sampling if end == len(ids) else None, self.id)
        self.computed, self.coming = end, self.coming + (end == len(ids))
        return row


def askers(temperature: float) -> list[Asker]:
    rng = random.Random(7)
    prompts = [rng.choices(range(TINY.vocab), k=length) for length in (3, 9, 1, 6, 4, 11)]
    return [Asker(i, prompt, 3 + i % 4, Sampling(temperature, 5, i)) for i, prompt in enumerate(prompts)]


def serve(runner: ModelRunner, depth: int, temperature: float, preempt: float = 0.0) -> list[list[int]]:
    """Three requests at a time, up to `depth` steps in flight. Whoever has all its tokens was launched once too often where
    `depth` is 2: that token is ignored, and its blocks and its place are given to the next one at once."""
    everybody, rng = askers(temperature), random.Random(3)
    waiting, running, flight = everybody[::-1], list[Asker](), list[tuple[Launched, list[tuple[Asker, bool]]]]()
    pool = list(range(NUM_BLOCKS))
    while waiting or running or flight:
        while waiting and len(running) < 3:
            running.append(waiting.pop())
        if running and rng.random() < preempt:
            victim = rng.choice(running)
            pool += victim.blocks
            victim.blocks, victim.computed = [], 0
        if running:
            rows = [one.row(5, pool) for one in running]
            emits = [(one, row.sampling is not None) for one, row in zip(running, rows, strict=True)]
            flight.append((runner.launch(rows), emits))
        if len(flight) == depth or not running:
            launched, emits = flight.pop(0)
            for (one, emitted), token in zip(emits, launched.tokens(), strict=True):
                assert (token is not None) == emitted
                if token is not None and one in running:
                    one.read.append(token)
                    one.coming -= 1
            for one in [one for one in running if len(one.read) == one.wanted]:
                running.remove(one)
                pool += one.blocks
                runner.forget(one.id)
    return [one.read for one in everybody]


@pytest.fixture(params=STREAMS.values(), ids=STREAMS)
def runner(request: pytest.FixtureRequest) -> ModelRunner:
    make: Callable[[], Stream] = request.param
    return make_runner(make())


@pytest.mark.parametrize("temperature", (0.0, 1.2))
def test_two_steps_in_flight_give_the_tokens_of_one_at_a_time(runner: ModelRunner, temperature: float) -> None:
    """Requests end and start between; mini-sglang#67, #102 and #103 gave wrong tokens or worse here."""
    alone = serve(make_runner(CpuStream()), 1, temperature)
    assert [len(tokens) for tokens in alone] == [one.wanted for one in askers(0.0)]
    assert serve(runner, 2, temperature) == alone


@pytest.mark.parametrize("temperature", (0.0, 1.2))
def test_a_request_preempted_in_flight_is_computed_again_from_tokens_the_host_has_not_seen(
    runner: ModelRunner, temperature: float
) -> None:
    assert serve(runner, 2, temperature, preempt=0.4) == serve(make_runner(CpuStream()), 1, temperature)


def test_a_step_of_nothing_is_done() -> None:
    assert make_runner(delayed.DelayedStream()).launch([]).tokens() == []


def test_tokens_can_be_read_twice_and_out_of_order() -> None:
    runner = make_runner(delayed.DelayedStream())
    first, second = runner.launch([Row([1], 0, [0], GREEDY, 1)]), runner.launch([Row([LATEST], 1, [0], GREEDY, 1)])
    later = second.tokens()
    assert later == second.tokens() and first.tokens() != [None]
    again = make_runner(CpuStream())
    assert first.tokens() == (one := again.step([Row([1], 0, [0], GREEDY)]))
    assert later == again.step([Row([one[0] or 0], 1, [0], GREEDY)])


@pytest.mark.parametrize(
    "row", (Row([LATEST], 3, [0], GREEDY, 9), Row([LATEST], 3, [0], GREEDY), Row([LATEST, 3], 3, [0, 1], None))
)
def test_a_latest_token_that_nobody_drew_is_refused(row: Row) -> None:
    runner = make_runner(CpuStream())
    runner.step([Row([1, 2, 3], 0, [0], GREEDY, 8)])
    with pytest.raises(AssertionError, match=r"has no token of request|a token id is not in"):
        runner.step([row])


def test_a_forgotten_request_has_no_token() -> None:
    runner = make_runner(CpuStream())
    runner.step([Row([1, 2, 3], 0, [0], GREEDY, 8)])
    runner.forget(8)
    runner.forget(8)
    with pytest.raises(AssertionError, match="no token of request 8"):
        runner.step([Row([LATEST], 3, [0], GREEDY, 8)])


def test_reset_waits_its_turn() -> None:
    runner = make_runner(delayed.DelayedStream())
    launched = runner.launch([Row([1, 2, 3], 0, [0], GREEDY)])
    runner.reset()
    tokens = launched.tokens()
    assert runner.cache.all.any()
    runner.launch([Row([1], 0, [4], None)]).tokens()
    assert not runner.cache.all[:, :, 0].any() and tokens == make_runner(CpuStream()).step([Row([1, 2, 3], 0, [0], GREEDY)])
