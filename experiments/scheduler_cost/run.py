"""Host time of one scheduling step, plan and commit together, with a full batch running and a queue behind it.

    python experiments/scheduler_cost/run.py

`steady`: nobody ends, the slots stay full. `churn`: one request ends, one starts and one arrives per step (to queue the
arrival is measured apart). No engine runs: what is timed is all that a policy lab adds to an engine's step.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from slotlab import Policy, Request, RequestState, Result
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.policies.fcfs import FCFS
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC
from slotlab_plugins.predictors.basic import Oracle

RUNNING, TENANTS, BLOCK_SIZE, BLOCKS_EACH, MAX_TOKENS = 256, 16, 16, 64, 850
QUEUES = (0, 10_000, 100_000)
WARM_UP, STEPS = 40, 300
POLICIES: dict[str, Callable[[], Policy]] = {"fcfs": FCFS, "sjf": SJF, "vtc": VTC}


@dataclass
class Load:
    """A scheduler with 256 requests running and a queue of random requests of 16 tenants behind them."""

    policy: Policy
    waiting: int
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        pool = BlockPool(BLOCKS_EACH * RUNNING, BLOCK_SIZE)
        self.scheduler = Scheduler(pool, self.policy, Continuous(RUNNING, 8192), predictor=Oracle())
        self.now = 0.0
        for _ in range(RUNNING + self.waiting):
            self.submit()

    def submit(self) -> RequestState:
        """One more request in the queue."""
        id = self.scheduler.arrivals
        req = Request(id, float(id), self.rng.randint(1, 127), MAX_TOKENS, tenant=f"t{id % TENANTS}")
        return self.scheduler.submit(req, self.now, self.rng.randint(1, MAX_TOKENS))

    def step(self, end_one: bool) -> float:
        """Plan and commit; the seconds that they took. What an engine would do in between is not counted."""
        start = perf_counter()
        plan = self.scheduler.plan(self.now)
        planned = perf_counter()
        assert len(plan.tokens) == RUNNING, f"{len(plan.tokens)} requests run"
        stopped = [next(iter(plan.tokens))] if end_one else []
        result = Result([1.0], [int(req.remaining == n) for req, n in plan.tokens.items()], stopped)
        self.now += 1.0
        executed = perf_counter()
        self.scheduler.commit(plan, result, self.now)
        return planned - start + perf_counter() - executed

    def steady(self) -> list[float]:
        """Seconds of each step while nobody comes or goes."""
        return [self.step(end_one=False) for _ in range(STEPS)]

    def churn(self) -> tuple[list[float], list[float]]:
        """Seconds of each step, and of each submission between two steps."""
        steps, submissions = [], []
        for _ in range(STEPS):
            start = perf_counter()
            self.submit()
            submissions.append(perf_counter() - start)
            steps.append(self.step(end_one=True))
        return steps, submissions


def fill(load: Load) -> None:
    """Prefill the batch, so that from here on every step decodes."""
    while load.scheduler.books.prefilling or not load.scheduler.books.running:
        plan = load.scheduler.plan(load.now)
        load.scheduler.commit(plan, Result([1.0], [int(req.remaining == n) for req, n in plan.tokens.items()]), load.now)
    for _ in range(WARM_UP):
        load.step(end_one=False)


def cell(seconds: list[float]) -> str:
    """Median and 99th percentile, in microseconds."""
    return f"{median(seconds) * 1e6:.0f} ({quantiles(seconds, n=100)[-1] * 1e6:.0f})"


def main() -> None:
    """Measure every policy at every length of the queue, and print the table."""
    table = Table(title=f"plan + commit with {RUNNING} running: median (p99) in microseconds")
    for column in ("policy", "", *(f"{n:,} waiting" for n in QUEUES), "growth"):
        table.add_column(column, justify="right" if column else "left")
    for name, policy in track(POLICIES.items(), "measuring", transient=True):
        rows: dict[str, list[list[float]]] = {"steady": [], "churn": [], "submit": []}
        for waiting in QUEUES:
            load = Load(policy(), waiting)
            fill(load)
            rows["steady"].append(load.steady())
            for row, seconds in zip(("churn", "submit"), load.churn(), strict=True):
                rows[row].append(seconds)
        for row, cells in rows.items():
            growth = median(cells[-1]) / median(cells[0])
            table.add_row(name, row, *map(cell, cells), f"{growth:.1f}x", end_section=row == "submit")
    Console().print(table)


if __name__ == "__main__":
    main()
