"""What changes the meaning of a result, as a sentence by a short key: in meta.json, the tracker's tags and every table.

Keys of our own: `oracle`, `acts_as_fcfs`, `rejected`, `ended_early`, `load` (`Load.remark`). Engines and workloads add theirs
among their facts, under names that begin with `remark.`: `fallback_ops`, `not_deterministic`, `lossy`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from slotlab.lab.config import Lab

if TYPE_CHECKING:
    from slotlab.record.recorder import Recorder

PREFIX = "remark."
IN_NAME = ("acts_as_fcfs", "lossy")  # else the name would promise what did not run; an oracle has its choice there

Remarks = dict[str, str]


def composed(lab: Lab) -> Remarks:
    """What the composition alone tells."""
    remarks = {"oracle": "the predictor is told the true lengths of the answers"} if lab.predictor.oracle else {}
    if lacking := [f"engine.{name}" for name in lab.policy.uses if not getattr(lab.engine, name, None)]:
        remarks["acts_as_fcfs"] = f"without {' and '.join(lacking)} the policy acts as fcfs"
    return remarks


def split(facts: Mapping[str, str]) -> tuple[dict[str, str], Remarks]:
    """The facts of an engine or a workload, and the remarks among them."""
    remarks = {name.removeprefix(PREFIX): fact for name, fact in facts.items() if name.startswith(PREFIX)}
    return {name: fact for name, fact in facts.items() if not name.startswith(PREFIX)}, remarks


def add(remarks: Remarks, key: str, sentence: str) -> None:
    """Add a sentence. Load points that differ have one each under the same key."""
    said = remarks.get(key)
    if said is None or sentence not in said.split("; "):
        remarks[key] = f"{said}; {sentence}" if said else sentence


def full_name(name: str, remarks: Remarks, recorders: Sequence[Recorder]) -> str:
    """A run's name, with what is true of all its load points and repeats."""
    whole = [key for key in IN_NAME if key in remarks and len({key in recorder.remarks for recorder in recorders}) < 2]
    return f"{name} ({', '.join(map(mark, whole))})" if whole else name


def mark(key: str) -> str:
    """A key as a table or a name shows it."""
    return key.replace("_", " ")
