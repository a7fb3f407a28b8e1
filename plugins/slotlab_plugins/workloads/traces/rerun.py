"""Our own runs as workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slotlab import Arrival, Streams, Tenant, UserError, require
from slotlab_plugins.workloads.traces.trace import Row, Trace

COLUMNS = (
    "point",
    "repeat",
    "tenant",
    "priority",
    "deadline",
    "scheduled_arrival",
    "status",
    "prompt_tokens",
    "max_tokens",
    "output_tokens",
)


@dataclass(slots=True)
class Again(Row):
    """A request of a run."""

    max_tokens: int = 1
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None


@dataclass
class Rerun(Trace):
    """The requests of a run again (its folder, or its requests.parquet): those of one load `point` and `repeat`.

    They keep their times, caps, tenants, priorities and deadlines. `weights` of the tenants are not in the record. Requests
    that were rejected or aborted are dropped: nobody knows how long their answers would have been.
    """

    point: int | None = None
    repeat: int = 0
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folder = Path(self.path)
        if folder.is_dir():
            self.path = str(folder / "requests.parquet")
        super().__post_init__()
        for name, weight in self.weights.items():
            require(weight > 0, f"weights.{name}", weight, "greater than 0")

    def origin(self, first: Row) -> float:
        return 0.0

    def rows(self, streams: Streams) -> Iterator[Again]:
        number = 0
        for number, row in enumerate(self.records(), 1):
            status = row["status"]
            due = row["deadline"]
            yield Again(
                number=number,
                time=row["scheduled_arrival"],
                prompt_tokens=row["prompt_tokens"],
                output_tokens=row["output_tokens"],
                dropped="" if status == "finished" else status,
                max_tokens=row["max_tokens"],
                tenant=row["tenant"],
                priority=row["priority"],
                deadline=None if due is None else due - row["scheduled_arrival"],
            )

    def records(self) -> Iterator[Mapping[str, Any]]:
        """The rows of the point and repeat, some thousand at a time."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from slotlab.record.schema import SCHEMA_VERSION

        try:
            file = pq.ParquetFile(self.path)
        except pa.ArrowInvalid as error:
            raise self.file.refuse(1, f"is no parquet ({str(error).splitlines()[0]})") from None
        version = (file.schema_arrow.metadata or {}).get(b"schema_version", b"none").decode()
        if version != SCHEMA_VERSION:
            raise UserError(f"{self.path}: schema_version={version}: must be {SCHEMA_VERSION}")
        points = {value for batch in file.iter_batches(columns=["point"]) for value in batch["point"].to_pylist()}
        point = self.point if self.point is not None or len(points) != 1 else points.pop()
        if point is None or (points and point not in points):
            raise UserError(f"workload.point={self.point}: must be one of {', '.join(map(str, sorted(points)))}")
        for batch in file.iter_batches(batch_size=8192, columns=COLUMNS):
            for row in batch.to_pylist():
                if row["point"] == point and row["repeat"] == self.repeat:
                    yield row

    def arrival(self, row: Row, cap: int, tenant: Tenant) -> Arrival:
        assert isinstance(row, Again), "rows yields what was recorded"
        arrival = replace(super().arrival(row, self.max_tokens or row.max_tokens, tenant), deadline=row.deadline)
        if self.tenants:
            return arrival
        weight = self.weights.get(row.tenant, 1.0)
        return replace(arrival, tenant=row.tenant, priority=row.priority, weight=weight)
