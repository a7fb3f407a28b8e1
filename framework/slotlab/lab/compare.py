"""`slotlab compare`: what differs between runs beyond the noise."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from slotlab.errors import UserError
from slotlab.lab.progress import console
from slotlab.lab.report import cell, print_table
from slotlab.lab.summary import Finished
from slotlab.reading import must_have, read_object, read_yaml, reading
from slotlab.record.contrasts import Contrast, Measured, contrasts
from slotlab.record.slo import SLO

Noise = dict[tuple[str, int | None], float]  # by metric and load point
ADVICE = "add trial=1,2,3 to the sweep (or slotlab experiment=a_a with the same options) and give that folder as --floor"


def compare_runs(words: list[str]) -> int:
    """`slotlab compare RUN RUN [RUN ...] [--floor RUN]`: each run against the first. RUN is a folder of a run or of a sweep.

    The noise floor comes from runs of one composition (equal `run_key`): those under --floor, else those among and
    beside the runs. A virtual clock has no noise.
    """
    folders, floor = parse(words)
    runs = [run for folder in folders for run in runs_of(folder)]
    if len(runs) < 2:
        raise UserError(f"compare {' '.join(words)}: must name two or more runs (or a sweep of them); there is {len(runs)}")
    base = runs[0]
    for run in runs[1:]:
        refuse_unlike(base, run)
    noise = noise_floor(base, runs, floor)
    for run in runs[1:]:
        tell_other_arithmetic(base, run)
        tell_remarks(base, run)
        show(base, run, noise)
    return 0


def parse(words: list[str]) -> tuple[list[Path], Path | None]:
    """Folders and the floor's."""
    folders, floor, rest = list[Path](), None, iter(words)
    for word in rest:
        if word == "--floor":
            value = next(rest, None)
            if value is None or floor is not None:
                raise UserError("compare --floor: must be followed by the folder of a sweep of equal runs, and given once")
            floor = Path(value)
        elif word.startswith("-"):
            raise UserError(f"compare {word}: the only option is --floor RUN")
        else:
            folders.append(Path(word))
    return folders, floor


def runs_of(folder: Path) -> list[Finished]:
    """The run in `folder`, or all runs of the sweep in it."""
    if (folder / "sweep.json").exists():
        path = folder / "sweep.json"
        jobs = [must_have(job, {"folder": str, "status": str}, path) for job in read_object(path, {"jobs": list})["jobs"]]
        return [Finished.read(folder / job["folder"]) for job in jobs if job["status"] == "FINISHED"]
    if not (folder / "meta.json").exists():
        raise UserError(f"{folder}: must be the folder of a run (with meta.json) or of a sweep (with sweep.json)")
    status = read_object(folder / "meta.json", {"status": str})["status"]
    if status != "FINISHED":
        raise UserError(f"{folder}: the run is {status}: must be FINISHED to be compared")
    return [Finished.read(folder)]


def refuse_unlike(base: Finished, run: Finished) -> None:
    """One line for runs that cannot be compared."""
    for name, value in facts_to_share(base).items():
        other = facts_to_share(run)[name]
        if other != value:
            raise UserError(f"{base.folder} and {run.folder} are not compared: {name}={value} in one and {other} in the other")


def facts_to_share(run: Finished) -> dict[str, Any]:
    """What must be equal where runs are compared."""
    path = run.folder / "requests.parquet"
    with reading(path, "Parquet file"):
        version = (pq.read_schema(path).metadata or {}).get(b"metrics_version", b"none").decode()
    return {
        "time_unit": run.meta["time_unit"],
        "slo": slo_of(run),
        "workload_digest": run.meta["workload_digest"],
        "load points": ", ".join(load(row, run.meta["time_unit"]) for row in run.curve),
        "metrics_version": version,
    }


def tell_other_arithmetic(base: Finished, run: Finished) -> None:
    """Says so where the runs computed in another dtype or by other implementations of an op, for then tokens may differ."""
    unlike: dict[tuple[str, str], list[str]] = {}
    mine, other = base.meta.get("engine", {}), run.meta.get("engine", {})
    for name in dict.fromkeys((*mine, *other)):
        pair = mine.get(name, "none"), other.get(name, "none")
        if (name == "dtype" or name.startswith("op.")) and pair[0] != pair[1]:
            unlike.setdefault(pair, []).append(name)
    said = "; ".join(f"{', '.join(names)}: {there}, not {here}" for (here, there), names in unlike.items())
    if said:
        line = f"{run.name} against {base.name}: tokens may differ by rounding, for the runs computed otherwise: {said}"
        console.print(line)


def tell_remarks(base: Finished, run: Finished) -> None:
    """Says what changes the meaning of one of them only."""
    for one, other in ((base, run), (run, base)):
        for key in (key for key, sentence in one.remarks.items() if other.remarks.get(key) != sentence):
            console.print(f"{run.name} against {base.name}: of {one.folder} alone: {one.remarks[key]}")


def slo_of(run: Finished) -> dict[str, Any]:
    """The limits of latency that the run was held to."""
    path = run.folder / "config.yaml"
    slo: dict[str, Any] = must_have(read_yaml(path), {"slo": dict}, path)["slo"]
    with reading(path, "config"):
        SLO(**slo)
    return slo


def measured(run: Finished) -> Measured:
    """What the statistics need of a run."""
    return Measured(run.requests(), SLO(**slo_of(run)), run.meta.get("weights", {}))


def noise_floor(base: Finished, runs: Sequence[Finished], folder: Path | None) -> Noise | None:
    """The largest difference that equal runs allow, by metric and load point; None where that is not known. Says so."""
    real = [run for run in runs if run.meta.get("real", True)]
    if not folder and not real:
        console.print("noise floor: none, for a virtual clock has no noise")
        return {}
    equals = equal_runs(runs_of(folder) if folder else [*runs, *beside(real[0])])
    if folder and not equals:
        raise UserError(f"--floor {folder}: must hold two or more runs of one composition; {ADVICE}")
    noise: Noise = {}
    used = set[Path]()
    for a, b in equals:
        try:
            refuse_unlike(base, a)
        except UserError:
            if folder:
                raise
            continue
        for found in contrasts(measured(a), measured(b), resamples=500):
            key = found.metric, found.point
            noise[key] = max(noise.get(key, 0.0), found.reach)
        used |= {a.folder.absolute(), b.folder.absolute()}
    if used:
        console.print(f"noise floor: from {len(used)} runs that each have an equal, in {os.path.commonpath(used)}")
    else:
        console.print(f"noise floor: unknown, so a difference may be the machine's; {ADVICE}")
    return noise or None


def beside(run: Finished) -> Iterator[Finished]:
    """Finished runs of the same setting on the same machine, in the folders around that of `run`; says which cannot be read."""
    here = run.folder.absolute()
    for path in sorted({*here.parent.glob("*/meta.json"), *here.parent.parent.glob("*/*/meta.json")}):
        try:
            meta = read_object(path, {"status": str, "facts": dict})
            same = all(meta.get(name) == run.meta.get(name) for name in ("setting", "engine"))
            machine = meta["facts"].get("host") == run.meta["facts"].get("host")
            if same and machine and meta["status"] == "FINISHED":
                yield Finished.read(path.parent)
        except UserError as error:
            console.print(f"left out: {error}")


def equal_runs(runs: Sequence[Finished]) -> list[tuple[Finished, Finished]]:
    """All pairs of different folders with one composition."""
    known = {run.folder.absolute(): run for run in runs}
    return [(a, b) for a, b in combinations(known.values(), 2) if a.meta["run_key"] == b.meta["run_key"]]


def show(base: Finished, run: Finished, noise: Noise | None) -> None:
    """A table of the differences over all load points, and a sentence for these and for each point that deviates."""
    title = f"{run.name} against {base.name}"
    found = contrasts(measured(base), measured(run))
    rows = [table_row(contrast, noise) for contrast in found if contrast.point is None]
    print_table(title, list(rows[0]), rows)
    said = ""
    for point in dict.fromkeys(contrast.point for contrast in found):
        line = sentence([contrast for contrast in found if contrast.point == point], noise)
        if line != said:
            console.print(f"{title}{place(base, point)}: {line}")
        said = said or line


def place(run: Finished, point: int | None) -> str:
    """The load point in words; nothing for all of them."""
    return "" if point is None else f" at {load(run.curve[point], run.meta['time_unit'], cell)}"


def load(row: Mapping[str, Any], unit: str, number: Callable[[float], str] = repr) -> str:
    """How hard a load point pressed; by default exactly, for that is compared."""
    if "rate" in row:
        return f"{number(row['rate'])}/{unit}"
    return f"{row['concurrency']} clients" if "concurrency" in row else "the workload's own times"


def table_row(found: Contrast, noise: Noise | None) -> dict[str, Any]:
    """A contrast as a row: the figure in the first run and in this one, and how far they are apart."""
    span = found.interval
    floor = {} if noise is None else {"noise": noise.get((found.metric, found.point), 0.0)}
    return {
        "metric": found.metric,
        "first": found.a,
        "this": found.b,
        "difference": span.difference,
        "95 % interval": found.lack or f"{cell(span.low)} .. {cell(span.high)}",
        **floor,
        "outcome": outcome(found, noise),
    }


def outcome(found: Contrast, noise: Noise | None) -> str:
    """won | lost | no difference | unknown, where there is too little for an interval."""
    if found.lack:
        return "unknown"
    return found.outcome((noise or {}).get((found.metric, found.point), 0.0))


def sentence(found: Sequence[Contrast], noise: Noise | None) -> str:
    """Which figures differ beyond the noise, which way, and which ones nothing can be said about."""
    groups: dict[str, list[str]] = {"won": [], "lost": [], "no difference": [], "unknown": []}
    for contrast in found:
        groups[outcome(contrast, noise)].append(contrast.metric)
    if not groups["won"] and not groups["lost"]:
        unknown = f" (too little to say of {', '.join(groups['unknown'])})" if groups["unknown"] else ""
        return f"no difference beyond the noise{unknown}"
    words = {"won": "won on", "lost": "lost on", "no difference": "no difference beyond the noise on", "unknown": "unknown:"}
    return "; ".join(f"{words[name]} {', '.join(metrics)}" for name, metrics in groups.items() if metrics)
