"""What plugins see of the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from slotlab.request import RequestState, RequestView
from slotlab.waiting import Key, Waiting

if TYPE_CHECKING:
    from slotlab.core.blocks import BlockPool


class View:
    """One read-only window on the scheduler, the same object for every plugin and every step.

    But while the core looks for requests to displace, `Admission.reserve` is shown what would be without them.
    """

    __slots__ = (
        "_freed",
        "_pool",
        "_running",
        "last_start",
        "now",
        "prefill_clock",
        "rank",
        "slots_left",
        "step",
        "tokens_left",
        "waiting",
    )

    def __init__(
        self,
        pool: BlockPool,
        waiting: Waiting,
        running: dict[RequestState, None],
        rank: Callable[[RequestView, View], Key],
    ) -> None:
        self._pool, self._running = pool, running
        self._freed = 0  # blocks that would come free: see `without`
        self.waiting = waiting
        self.rank: Callable[[RequestView], Any] = lambda req: rank(req, self)  # the policy's, smaller is better
        self.now = 0.0
        self.step = 0
        self.last_start = 0  # the step in which somebody last started
        self.prefill_clock = 0  # prompt tokens computed since the start: time that passes only under load
        self.slots_left = 0  # in the step being planned
        self.tokens_left = 0

    @property
    def running(self) -> Collection[RequestView]:
        """Requests that hold KV, oldest start first; paused ones too."""
        return self._running.keys()

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        return self._pool.available + self._freed

    @property
    def total_blocks(self) -> int:
        """KV blocks of the pool."""
        return self._pool.num_blocks

    @property
    def block_size(self) -> int:
        """Tokens per KV block."""
        return self._pool.block_size

    def blocks_to_start(self, req: RequestView) -> int:
        """How many of the `free_blocks` a waiting request would take if it started now with its whole known sequence.

        What it would share counts only where nobody holds it: such blocks are in the cache, and free as long as nobody does.
        """
        assert isinstance(req, RequestState)
        return self._pool.takes(req, req.known, self._pool.found(req)[0])

    def blocks_in_common(self, reqs: Iterable[RequestView]) -> Iterator[int]:
        """For each of `reqs` in turn: KV blocks that it holds, or would share at its start, and that one before it does too."""
        return self._pool.in_common(reqs)  # type: ignore[arg-type]  # views are of states

    def without(self, victims: Iterable[RequestView], freed: int) -> View:
        """This view as it would be if these running requests were evicted, which frees so many blocks."""
        view, gone = copy(self), set(victims)
        view._running = {req: None for req in self._running if req not in gone}
        view._freed = freed
        return view

    def prefix_hits(self, req: RequestView) -> int:
        """Tokens that a waiting request would find in the prefix cache now; 0 without one."""
        return len(self._pool.hits(req)) * self._pool.block_size

    def shared_prefix(self, a: RequestView, b: RequestView) -> int:
        """Tokens that two prompts begin with alike, in whole blocks; 0 without a prefix cache."""
        return self._pool.alike(a, b)

    def blocks_for(self, num_tokens: int) -> int:
        """KV blocks that `num_tokens` take."""
        return self._pool.blocks_for(num_tokens)
