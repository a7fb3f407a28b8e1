"""`slotlab plugins`: everything that can be chosen, and what cannot and why."""

from __future__ import annotations

import json
from dataclasses import asdict

from slotlab.errors import UserError
from slotlab.lab.plugins import plugins


def show_plugins(words: list[str]) -> int:
    """`slotlab plugins`: everything that can be chosen, and what cannot and why."""
    if words not in ([], ["--json"]):
        raise UserError(f"plugins {' '.join(words)}: the only option is --json")
    rows = [asdict(choice) for choice in plugins().everything()]
    if words:
        print(json.dumps(rows, indent=1))
        return 0
    from slotlab.lab.report import print_table

    shown = [{**row, "summary": (row["error"] and f"BROKEN: {row['error']}") or row["summary"]} for row in rows]
    print_table("", ["group", "name", "plugin", "version", "where", "summary"], shown)
    return 0
