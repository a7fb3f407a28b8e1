"""Our engine against vLLM's and transformers' on this machine's CPU, in alternating rounds.

    python experiments/engine_vs_peers/run.py [ROUNDS] [NAME ...]

Everybody serves the same 64 requests with the same weights on two threads. Rounds that others disturbed do not count. The first
run installs the peers under .cache/peers, some gigabytes. Writes results-<peers>.json beside itself.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from compare import agreement, disturbance, paired_ratio, processors
from contestant import CONTESTANTS, Contestant
from install import CACHE
from jobs import REQUESTS, SLOTS, THREADS, draw, export_weights, write
from rich.console import Console
from rich.table import Table

ROUNDS, MOST_TRIES = 7, 3  # rounds that count, and how many times as many are tried
OURS = "slotlab"
Round = dict[str, dict[str, Any]]
console = Console()


def play(contestants: list[Contestant], turn: int) -> tuple[Round, str | None]:
    """One round in which everybody serves once, each time in another order; and why it does not count, if so."""
    shift = turn % len(contestants)
    answers, why = {}, None
    for one in contestants[shift:] + contestants[:shift]:
        before, start = processors(), time.perf_counter()
        answers[one.name] = one.serve()
        found = disturbance(before, processors(), answers[one.name]["cpu_seconds"], time.perf_counter() - start)
        why = why or (f"{one.name}: {found}" if found else None)
        console.print(f"  {one.name}: {answers[one.name]['seconds']:.2f} s {found or ''}")
    return answers, why


def rounds(contestants: list[Contestant], wanted: int) -> tuple[list[Round], list[str]]:
    """As many rounds as wanted that count, and why the others do not."""
    counted: list[Round] = []
    discarded: list[str] = []
    while len(counted) < wanted and len(counted) + len(discarded) < MOST_TRIES * wanted:
        console.print(f"round {len(counted) + 1} of {wanted}, {len(discarded)} discarded")
        answers, why = play(contestants, len(counted) + len(discarded))
        if why:
            discarded.append(why)
        else:
            counted.append(answers)
    return counted, discarded


def summary(name: str, counted: list[Round], tokens: int) -> dict[str, Any]:
    """What is known about one contestant: medians, and the ratio to ours with its interval."""
    mine = [each[name] for each in counted]
    seconds = [each["seconds"] for each in mine]
    row: dict[str, Any] = {
        "seconds": seconds,
        "median_s": median(seconds),
        "output_tokens_per_s": tokens / median(seconds),
        "cores_used": sum(each["cpu_seconds"] for each in mine) / sum(seconds),
    }
    if name == OURS:
        row["host_share"] = median(each["host_share"] for each in mine)
    elif len(counted) > 1:
        row["ours_is_faster_by"] = str(paired_ratio([each[OURS]["seconds"] for each in counted], seconds))
    for first in (1, 8, 16):
        row[f"same_first_{first}"] = agreement(counted[0][OURS]["outputs"], counted[0][name]["outputs"], first)
    return row


def show(results: dict[str, Any]) -> None:
    """The table."""
    rounds, discarded = results["rounds"], len(results["discarded"])
    table = Table(title=f"{REQUESTS} requests, {SLOTS} slots, {THREADS} threads: {rounds} rounds, {discarded} discarded")
    for column in ("", "median s", "output tokens/s", "ours is faster by [95 %]", "cores", "same first 1 / 8 / 16 tokens"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in results["contestants"].items():
        same = " / ".join(f"{row[f'same_first_{first}']:.0%}" for first in (1, 8, 16))
        cells = (f"{row['median_s']:.2f}", f"{row['output_tokens_per_s']:.0f}", row.get("ours_is_faster_by", ""))
        table.add_row(name, *cells, f"{row['cores_used']:.2f}", same)
    console.print(table)
    ours = results["contestants"][OURS]
    console.print(f"host share of our steps, outside of the model's forward pass: {ours['host_share']:.1%}")
    for name, told in results["versions"][OURS].items():
        if name.startswith("floor"):
            console.print(f"{name}: {told}")


def main(wanted: int, names: list[str]) -> None:
    """Start everybody, play, print, write."""
    work, jobs = CACHE / "work", draw(0)
    work.mkdir(parents=True, exist_ok=True)
    export_weights(work / "smollm2")
    write(jobs, work / "requests.json")
    contestants: list[Contestant] = []
    try:
        for name in names:
            console.print(f"starting {name}")
            contestants.append(Contestant.start(name, work / "smollm2", work / "requests.json"))
        counted, discarded = rounds(contestants, wanted)
    finally:
        for one in contestants:
            one.stop()
    for why in discarded:
        console.print(f"discarded: {why}")
    if not counted:
        raise SystemExit("every round was disturbed: the machine must be quiet")
    tokens = sum(job.output for job in jobs)
    results = {
        "machine": {"processor": _processor(), "cores": THREADS, "system": platform.platform()},
        "versions": {one.name: one.versions for one in contestants},
        "rounds": len(counted),
        "discarded": discarded,
        "contestants": {name: summary(name, counted, tokens) for name in names},
    }
    peers = "-".join(sorted({name.split()[0] for name in names} - {OURS}))
    (Path(__file__).parent / f"results-{peers or OURS}.json").write_text(json.dumps(results, indent=1) + "\n")
    show(results)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))


if __name__ == "__main__":
    chosen = sys.argv[2:] or list(CONTESTANTS)
    if OURS not in chosen or not set(chosen) <= CONTESTANTS.keys():
        raise SystemExit(f"names must be among {', '.join(CONTESTANTS)}, and {OURS} one of them")
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS, chosen)
