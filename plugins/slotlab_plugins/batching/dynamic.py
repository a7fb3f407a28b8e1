"""Request-level batching with a window for stragglers."""

from __future__ import annotations

from dataclasses import dataclass, field

from slotlab import Closed, Open, View, require
from slotlab.limits import LATEST
from slotlab_plugins.batching.static import Static


@dataclass
class Dynamic(Static):
    """As static, but a batch waits up to `max_delay` seconds for a size in `preferred` (Triton's dynamic batcher).

    While the oldest waiting request is younger than that, a batch is exactly the largest preferred size that waits, never one
    more; after that it is whatever waits. Without `preferred` the only such size is `max_num_seqs`. Who is in the batch is the
    policy's choice: Triton's priority levels are `policy=priority`. What one step has no tokens or KV for stays behind, as
    under static batching. Its queue timeouts are `admission=queue_timeout`.
    """

    max_delay: float = 0.1
    preferred: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.max_delay <= LATEST, "max_delay", self.max_delay, f"at least 0 and at most {LATEST:g}")
        sizes, most = self.preferred, self.max_num_seqs
        rising = sizes == sorted(set(sizes)) and all(1 <= size <= most for size in sizes)
        require(rising, "preferred", sizes, f"rising sizes from 1 to max_num_seqs={most}")

    def gate(self, view: View) -> Open | Closed:
        if view.running:
            return Closed()
        due = view.waiting.oldest().arrival + self.max_delay
        if view.now >= due:
            return Open()
        sizes = [size for size in self.preferred or [self.max_num_seqs] if size <= len(view.waiting)]
        return Open(max_new=sizes[-1]) if sizes else Closed(wake_at=due)


CHOICES = {"dynamic": Dynamic}
