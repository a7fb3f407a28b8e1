"""Compiles every kernel for one target, and prints as JSON what breaks a rule, and the kernels there are."""

from __future__ import annotations

import json
import sys

from slotlab_kernels.aot import broken_rules, compile_all

if __name__ == "__main__":
    rows = compile_all(sys.argv[1])
    broken = [f"{row.kernel} ({row.shape}): {what}" for row in rows for what in broken_rules(row)]
    print(json.dumps({"broken": broken, "kernels": sorted({row.kernel for row in rows})}))
