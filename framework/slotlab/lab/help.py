"""`slotlab --help`: the commands, and every choice with the first line of its docstring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from slotlab.lab.config import conf_dir, literal
from slotlab.lab.plugins import GROUPS, plugins

USAGE = """slotlab [GROUP=CHOICE ...] [OPTION=VALUE ...]    run; several values and -m: a sweep
slotlab experiment=NAME                         a named sweep
slotlab plugins [--json] [--strict]             all choices, and what is broken; --strict: then the exit code is 1
slotlab rerun RUN [GROUP=CHOICE ...] [--lossy]  the requests of a run again, under its composition but for what is asked
slotlab compare RUN RUN [RUN ...] [--floor RUN] what differs beyond the noise; RUN: the folder of a run, or of a sweep
slotlab export RUN --format F [--out DIR]       a run's tables as csv, json or parquet
slotlab ui [--port N] [--uri URI]               MLflow on this machine, with the links to the curves

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
"""


def offer_help() -> None:
    """`--help` lists every choice with the first line of its docstring."""
    lines = [USAGE, "Choices:"]
    for group, _ in GROUPS.values():
        lines.append(f"  {group}")
        lines += [f"    {c.name:<18} {c.summary}" for c in plugins().everything() if c.group == group and not c.error]
    presets = {path.parent.name for path in Path(conf_dir()).glob("*/*.yaml")}
    for group in sorted(presets):
        lines.append(f"  {group} (presets in conf/{group}/)")
        for path in sorted(Path(conf_dir(), group).glob("*.yaml")):
            notes = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ") and "@package" not in line]
            lines.append(f"    {path.stem:<18} {notes[0] if notes else ''}")
    text = literal("\n".join(lines).replace("$", "$$")) + "\n\nOptions of this composition:\n$CONFIG\n"
    node: dict[str, Any] = {"app_name": "slotlab", "header": "", "footer": "", "template": text}
    ConfigStore.instance().store(group="hydra/help", name="slotlab", node=node, provider="slotlab")
