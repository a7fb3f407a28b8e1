"""`slotlab plugins`: everything that can be chosen, and what cannot and why."""

from __future__ import annotations

import json
from dataclasses import asdict

from slotlab.errors import UserError
from slotlab.lab.plugins import plugins


def show_plugins(words: list[str]) -> int:
    """`slotlab plugins [--json] [--strict]`: the listing; then 1 if `--strict` and any is broken, else 0."""
    if set(words) - {"--json", "--strict"} or len(words) > len(set(words)):
        raise UserError(f"plugins {' '.join(words)}: the options are --json and --strict, each once")
    rows = [asdict(choice) for choice in plugins().everything()]
    if "--json" in words:
        print(json.dumps(rows, indent=1))
    else:
        from slotlab.lab.report import print_table

        shown = [{**row, "summary": (row["error"] and f"BROKEN: {row['error']}") or row["summary"]} for row in rows]
        print_table("", ["group", "name", "plugin", "version", "where", "summary"], shown)
    return 1 if "--strict" in words and plugins().broken else 0
