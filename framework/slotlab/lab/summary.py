"""What a sweep found: one table, one figure, and per run a verdict against the first."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from slotlab.errors import UserError
from slotlab.lab.folder import write_json
from slotlab.lab.progress import console
from slotlab.lab.remarks import mark
from slotlab.lab.report import print_table
from slotlab.reading import must_have, read_object, read_objects
from slotlab.record.charts import draw_curves, draw_slots
from slotlab.record.schema import read_table
from slotlab.record.statistics import Comparison, compare, describe
from slotlab.writing import writing

Row = dict[str, Any]
META: dict[str, type] = dict.fromkeys(("name", "status", "setting", "run_key", "time_unit", "workload_digest"), str)
META |= dict.fromkeys(("choices", "engine", "facts"), dict)
WORDS = {"ttft": "mean TTFT", "e2e": "mean E2E"}


@dataclass(frozen=True)
class Finished:
    """A run folder of the sweep."""

    folder: Path
    meta: Row
    curve: list[Row]

    @classmethod
    def read(cls, folder: Path) -> Finished:
        """From its files."""
        curve = folder / "curve.json"
        rows = [must_have(row, {"point": int, "repeats": int}, curve) for row in read_objects(curve)]
        return cls(folder, read_object(folder / "meta.json", META), rows)

    @property
    def name(self) -> str:
        """As in MLflow."""
        return str(self.meta["name"])

    @property
    def remarks(self) -> dict[str, str]:
        """What changes the meaning of its figures."""
        return dict(self.meta.get("remarks", {}))

    def loads(self) -> list[tuple[Any, Any]]:
        """Its load points."""
        return [(row.get("rate"), row.get("concurrency")) for row in self.curve]

    def requests(self) -> pd.DataFrame:
        """Its requests."""
        return read_table(self.folder / "requests.parquet")


def summarise(folder: Path, experiment: str, runs: Sequence[Path]) -> None:
    """Print the table and the verdicts of a sweep; write `table.csv`, `verdicts.json`, `curves.png` and `slots.png`."""
    found = [Finished.read(run) for run in runs]
    if not found:
        return
    rows = [row for run in found for row in table_rows(run)]
    unit = found[0].meta["time_unit"]
    with writing(folder / "table.csv") as partial:
        pd.DataFrame(rows).to_csv(partial, index=False)
    draw_curves({run.name: run.curve for run in found}, folder / "curves.png", title=experiment, time_unit=unit)
    draw_slot_charts(folder, found)
    header = list(dict.fromkeys(name for row in rows for name in row))
    print_table(f"times in {'steps' if unit == 'step' else 'seconds'}", header, sorted(rows, key=lambda row: row["load"]))
    verdicts = [line for run in found for line in verdict_lines(baseline(run, found), run)]
    write_json(folder / "verdicts.json", verdicts)
    for line in verdicts:
        console.print(line)
    if found[0].meta["real"] and len(found) > 1:
        console.print(f"a real engine has noise, which these intervals do not hold: slotlab compare {folder} asks for its floor")
    console.print(f"sweep: {folder}")


def table_rows(run: Finished) -> list[Row]:
    """One row per load point; with several tenants also the smallest one's figures and its share of the tokens."""
    rows, remarks = [], {"remarks": ", ".join(map(mark, run.remarks))} if run.remarks else {}
    for point in run.curve:
        load = point.get("rate", point.get("concurrency", 0))
        row = {"load": load, "run": run.name, "tokens/s": point.get("output_throughput")}
        row |= {"mean TTFT": point.get("ttft_mean"), "mean E2E": point.get("e2e_mean")}
        if "concurrency" in point and "tpot_mean" in point:
            row["tokens/s of a stream"] = 1 / point["tpot_mean"]
        light = lightest(point)
        if light is not None:
            row |= {
                f"tenant {light}: TTFT": point.get(f"tenant_{light}_ttft_mean"),
                f"tenant {light}: E2E": point.get(f"tenant_{light}_e2e_mean"),
                f"tenant {light}: tokens/s": point.get(f"tenant_{light}_output_throughput"),
            }
        else:
            for key, name in (("makespan", "makespan"), ("slot_utilisation", "slot use"), ("batch_efficiency", "batch eff.")):
                row[name] = point.get(key)
        rows.append(row | remarks)
    return rows


def lightest(point: Row) -> str | None:
    """The tenant with the least service, if there are several."""
    tenants = {match[1]: value for key, value in point.items() if (match := re.fullmatch("tenant_(.*)_service", key, re.DOTALL))}
    return min(tenants, key=lambda name: tenants[name]) if len(tenants) > 1 else None


def baseline(run: Finished, runs: Sequence[Finished]) -> Finished:
    """What `run` is compared with: another run in the same setting under plain fcfs, else the first run of the sweep.

    The only plain fcfs of the first run's setting is compared with nothing, which is to say with itself.
    """
    setting = run.meta["setting"]
    plain = [peer for peer in runs if peer.meta["setting"] == setting and is_fcfs(peer.meta["choices"])]
    alone = run if run in plain and runs[0].meta["setting"] == setting else runs[0]
    return next((peer for peer in plain if peer is not run), alone)


def is_fcfs(choices: Mapping[str, str]) -> bool:
    """Whether the policy is fcfs, unmodified."""
    return choices["policy"] == "fcfs" and choices.get("modifier", "none") == "none"


def verdict_lines(base: Finished, run: Finished) -> list[str]:
    """How `run` did against `base`; why that cannot be said, if it cannot."""
    if run is base:
        return []
    try:
        if run.meta["workload_digest"] != base.meta["workload_digest"]:
            raise UserError("they served different requests")
        if run.meta["time_unit"] != base.meta["time_unit"]:
            raise UserError("their clocks count different units")
        if run.loads() != base.loads():
            raise UserError("they have different load points")
        mine, theirs = run.requests(), base.requests()
        lines = [f"{run.name} against {base.name}: {sentences(compare(theirs, mine))}"]
        light = lightest(run.curve[-1])
        if light is not None:
            found = compare(theirs[theirs["tenant"] == light], mine[mine["tenant"] == light])
            lines.append(f"{run.name} against {base.name}, tenant {light}: {sentences(found)}")
        return lines
    except UserError as error:
        return [f"{run.name} against {base.name}: not compared, {error}"]


def sentences(found: Comparison) -> str:
    """The outcome in each metric."""
    return "; ".join(sentence(found, name) for name in WORDS)


def sentence(found: Comparison, name: str) -> str:
    """One metric: the outcome, the difference and its interval."""
    interval = found.overall[name]
    if not math.isfinite(interval.high):
        return f"{interval.difference:+.3g} on {WORDS[name]} ({found.pairs} requests are too few for an interval)"
    span = f"{interval.difference:+.3g} [{interval.low:+.3g}, {interval.high:+.3g}]"
    return f"{describe(interval)} on {WORDS[name]}, {span}"


def draw_slot_charts(folder: Path, runs: Sequence[Finished]) -> None:
    """Who held which slot when: for sweeps of small runs with one load point."""
    tables = {run.name: run.folder / "slots.parquet" for run in runs}
    if all(len(run.curve) == 1 and tables[run.name].exists() for run in runs):
        cases = {name: read_table(path) for name, path in tables.items()}
        draw_slots(cases, folder / "slots.png", title="Who holds which slot at which step (hatched: held but idle)")
