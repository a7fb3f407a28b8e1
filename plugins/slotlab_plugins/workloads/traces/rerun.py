"""Our own runs as workloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from slotlab import Arrival, Streams, Tenant, UserError, require
from slotlab_plugins.workloads.traces.trace import Row, Trace


class Asked(NamedTuple):
    """A request of a run: its id there, and why it cannot be served again."""

    id: int
    arrival: Arrival
    dropped: str = ""


@dataclass(slots=True)
class Again(Row):
    """A row of a run's record."""

    asked: Asked | None = None


@dataclass
class Rerun(Trace):
    """The requests of a run again (`path`: its folder): in each repeat those that it drew there, or always those of one `repeat`.

    They come as the workload of that run drew them, for any load; with `point` at the times at which they were sent at that
    load point. Tenants keep their weights but for those in `weights`. `lossy`: from the run's table of requests alone, of one
    point and repeat; words, shared prefixes and sessions are lost, and so is who was rejected or aborted.
    """

    point: int | None = None
    repeat: int | None = None
    weights: dict[str, float] = field(default_factory=dict)
    lossy: bool = False

    def __post_init__(self) -> None:
        from slotlab.record.arrivals import LOST

        given, name = Path(self.path), "requests.parquet" if self.lossy else "arrivals.parquet"
        file = (given if given.is_dir() else given.parent) / name
        if given.exists() and not file.is_file():
            advice = "" if self.lossy else f"; lossy=true serves what is left: {LOST} would be lost"
            raise UserError(f"path={self.path}: must be the folder of a run with {name}{advice}")
        self.path = str(file if given.exists() else given)
        super().__post_init__()
        for name, weight in self.weights.items():
            require(weight > 0, f"weights.{name}", weight, "greater than 0")

    @property
    def own_times(self) -> bool:  # type: ignore[override]
        """Whether the times are seconds: those of a load point are."""
        from slotlab.reading import must_have, read_json

        if self.lossy or self.point is not None:
            return True
        meta = Path(self.path).with_name("meta.json")
        return bool(must_have(read_json(meta), {"own_times": bool}, meta)["own_times"])

    def origin(self, first: Row) -> float:
        return 0.0

    def rows(self, streams: Streams) -> Iterator[Again]:
        self._places: dict[int | None, int] = {}  # of the requests that are served, by their ids in the run
        repeat = streams.repeat if self.repeat is None else self.repeat
        for number, asked in enumerate(self.asked(repeat), 1):
            arrival = asked.arrival
            yield Again(
                number=number,
                time=arrival.time,
                prompt_tokens=arrival.prompt_tokens,
                output_tokens=arrival.most_output,
                dropped=asked.dropped,
                asked=asked,
            )

    def asked(self, repeat: int) -> Iterable[Asked]:
        """What the record says that was asked for in a repeat."""
        from slotlab.record.arrivals import read_arrivals

        requests = Path(self.path).with_name("requests.parquet")
        if self.lossy:
            return [guessed(row) for row in sent(requests, self.point, repeat)]
        drawn = read_arrivals(Path(self.path), repeat)
        if self.point is None:
            return [Asked(id, arrival) for id, arrival in enumerate(drawn)]
        times = {row["id"]: row["scheduled_arrival"] for row in sent(requests, self.point, repeat)}
        ids = sorted(times, key=lambda id: (times[id], id))
        return [Asked(id, replace(drawn[id], time=times[id])) for id in ids]

    def _unfit(self, row: Row) -> str:
        assert isinstance(row, Again) and row.asked, "rows yields what was asked"
        before = row.asked.arrival.follows
        return super()._unfit(row) or ("" if before is None or before in self._places else "follows_dropped")

    def arrival(self, row: Row, cap: int, tenant: Tenant) -> Arrival:
        assert isinstance(row, Again) and row.asked, "rows yields what was asked"
        id, asked, _ = row.asked
        arrival = replace(asked, time=row.time, follows=self._places.get(asked.follows))
        self._places[id] = len(self._places)
        if self.max_tokens:
            known = None if asked.output_tokens is None else min(asked.output_tokens, self.max_tokens)
            arrival = replace(arrival, max_tokens=self.max_tokens, output_tokens=known)
        if self.tenants:
            return replace(arrival, tenant=tenant.name, priority=tenant.priority, weight=tenant.weight)
        return replace(arrival, weight=self.weights.get(arrival.tenant, arrival.weight))

    def facts(self) -> Mapping[str, str]:
        from slotlab.record.arrivals import LOST

        lost = {"remark.lossy": f"served without {LOST}"} if self.lossy else {}
        return {**super().facts(), "trace": Path(self.path).parent.name, **lost}


def sent(path: Path, point: int | None, repeat: int) -> list[dict[str, Any]]:
    """The rows of the table of requests of one load point (None: the only one) and repeat."""
    from slotlab.record.schema import load_table

    rows = load_table(path).to_pylist()
    points = sorted({row["point"] for row in rows})
    if point not in points and (point is not None or len(points) != 1):
        raise UserError(f"workload.point={point}: must be one of {', '.join(map(str, points))}")
    some = [row for row in rows if row["point"] == (points[0] if point is None else point)]
    repeats = 1 + max(row["repeat"] for row in some)
    return [row for row in some if row["repeat"] == repeat % repeats]


def guessed(row: Mapping[str, Any]) -> Asked:
    """A row of the table of requests as a request; what it does not say is as if it had not been so."""
    status, due, time = row["status"], row["deadline"], row["scheduled_arrival"]
    arrival = Arrival(
        time=time,
        prompt_tokens=row["prompt_tokens"],
        max_tokens=row["max_tokens"],
        output_tokens=row["output_tokens"],
        tenant=row["tenant"],
        priority=row["priority"],
        deadline=None if due is None else due - time,
    )
    return Asked(row["id"], arrival, "" if status == "finished" else status)
