"""What all recorded workloads share: which rows are served, what becomes of the others, and the books about both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from slotlab import Arrival, Streams, Tenant, UserError, Workload, require
from slotlab.limits import LATEST, MOST_REQUESTS, MOST_TOKENS
from slotlab.reading import is_file
from slotlab_plugins.laws.tenants import check_tenant
from slotlab_plugins.workloads.traces.file import TraceFile

EMITTED = "emitted"


@dataclass(slots=True)
class Row:
    """One row of a trace."""

    number: int  # in the file, as an editor counts
    time: float  # seconds, on the file's clock
    prompt_tokens: int
    output_tokens: int
    dropped: str = ""  # why it cannot be served
    prefix_group: int | None = None
    prefix_tokens: int = 0


@dataclass
class TokenFile(Workload):
    """Prompt and output lengths from the rows of `path`, in the order of the file.

    `requests`: so many of them, from the first, and no fewer; null: all. Rows with longer prompts than `max_prompt` are
    dropped. All requests carry the same cap, `max_tokens`, which cuts longer outputs; null: the largest output that is
    served. Public traces name no tenants: those given here are drawn by their shares, and the record calls them synthesised.
    """

    path: str = ""
    requests: int | None = None
    max_prompt: int | None = None
    max_tokens: int | None = None
    tenants: list[Tenant] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(is_file(self.path), "path", self.path, "a file that is there")
        for name, most in (("requests", MOST_REQUESTS), ("max_prompt", MOST_TOKENS), ("max_tokens", MOST_TOKENS)):
            value = getattr(self, name)
            require(value is None or 1 <= value <= most, name, value, f"at least 1 and at most {most}, or null")
        names = [tenant.name for tenant in self.tenants]
        require(len(set(names)) == len(names), "tenants", names, "tenants with names of their own")
        for tenant in self.tenants:
            check_tenant(tenant)
        self._tally: Counter[str] = Counter()
        self._cut = 0

    @property
    def file(self) -> TraceFile:
        """The file at `path`."""
        return TraceFile(Path(self.path))

    def rows(self, streams: Streams) -> Iterator[Row]:
        """All rows of the file, read lazily; one that cannot be served says why in `dropped`."""
        raise NotImplementedError

    def timed(self, streams: Streams) -> Iterator[Row]:
        """The rows on the workload's own clock."""
        return self.rows(streams)

    def placed(self, rows: Iterator[Row], streams: Streams) -> Iterator[Row]:
        """The rows that are served, at the times at which they are: the last word of a format about them."""
        return rows

    def draw(self, streams: Streams) -> Iterable[Arrival]:
        """Reads the file as the arrivals are asked for; twice, if it has to look for the largest output."""
        cap = self.max_tokens or max((row.output_tokens for row in self._served(streams, Counter())), default=1)
        self._tally, self._cut = Counter(), 0
        owners = self._owners(streams)
        for row in self.placed(self._served(streams, self._tally), streams):
            self._cut += row.output_tokens > cap
            yield self.arrival(row, cap, next(owners))
        served = self._tally[EMITTED]
        if not served:
            raise UserError(f"{self.path}: no request is left: {self._books()}")
        if self.requests and served < self.requests:
            raise UserError(f"workload.requests={self.requests}: must be at most {served} ({self.path}: {self._books()})")

    def arrival(self, row: Row, cap: int, tenant: Tenant) -> Arrival:
        """A row as a request of `tenant`."""
        return Arrival(
            time=row.time,
            prompt_tokens=row.prompt_tokens,
            max_tokens=cap,
            output_tokens=min(row.output_tokens, cap),
            tenant=tenant.name,
            priority=tenant.priority,
            weight=tenant.weight,
            prefix_group=row.prefix_group,
            prefix_tokens=row.prefix_tokens,
        )

    def _served(self, streams: Streams, tally: Counter[str]) -> Iterator[Row]:
        """Rows that become requests. Every row read is counted in `tally`, by what became of it."""
        for row in self.timed(streams):
            reason = row.dropped or self._unfit(row)
            tally[reason or EMITTED] += 1
            if not reason:
                yield row
                if tally[EMITTED] == self.requests:
                    return

    def _unfit(self, row: Row) -> str:
        if row.prompt_tokens < 1:
            return "no_prompt"
        if row.output_tokens < 1:
            return "no_output"
        return "too_long" if self.max_prompt is not None and row.prompt_tokens > self.max_prompt else ""

    def _owners(self, streams: Streams) -> Iterator[Tenant]:
        tenants = self.tenants or [Tenant()]
        if len(tenants) == 1:
            while True:
                yield tenants[0]
        rng, ends = streams("tenants"), np.cumsum([tenant.share for tenant in tenants])
        while True:
            yield tenants[int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))]

    def _books(self) -> str:
        """`read = emitted + dropped`, each dropped row by its reason."""
        dropped = [f"{count} {reason}" for reason, count in self._tally.items() if reason != EMITTED]
        return f"read {self._tally.total()} = " + " + ".join([f"{self._tally[EMITTED]} {EMITTED}", *dropped])

    def facts(self) -> Mapping[str, str]:
        found = {"trace": Path(self.path).name, "rows": self._books()}
        if self._cut:
            found["cut"] = f"{self._cut} outputs at max_tokens={self.max_tokens}"
        if self.tenants:
            found["tenants"] = "synthesised by share"
        return found


@dataclass
class Trace(TokenFile):
    """A recorded stream of requests. `start` and `end`, in seconds after the first row, cut a window out of it."""

    start: float = 0.0
    end: float | None = None

    own_times: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.start <= LATEST, "start", self.start, f"at least 0 and at most {LATEST:g}")
        require(self.end is None or self.end > self.start, "end", self.end, f"greater than start={self.start}, or null")

    def timed(self, streams: Streams) -> Iterator[Row]:
        """Times from the window's start; rows of one instant stay in order. Raises UserError where time goes back."""
        zero = last = None
        for row in self.rows(streams):
            zero = self.origin(row) if zero is None else zero
            time = row.time - zero
            if last is not None and time < last:
                raise self.file.refuse(row.number, f"comes {last - time:.7g} s before the row above it: sort the file by time")
            if time > LATEST:
                raise self.file.refuse(row.number, f"comes {time:.7g} s after the trace begins: must be at most {LATEST:g} s")
            last = time
            if self.end is not None and time >= self.end:
                return
            row.time = time - self.start
            if row.time < 0:
                row.dropped = row.dropped or "before_start"
            yield row

    def origin(self, first: Row) -> float:
        """Where the trace's time begins, on the file's clock."""
        return first.time
