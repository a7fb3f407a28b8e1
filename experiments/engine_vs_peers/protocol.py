"""How a contestant, a process of its own, is told to serve: a line in, a line of JSON out. Runs in every environment."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Serve = Callable[[], dict[str, Any]]


def answer(serve: Serve, versions: dict[str, str]) -> None:
    """Serve once unmeasured, say so, then once for every line that comes in, until there are no more.

    `serve` returns `outputs`, and whatever else it has to tell; the seconds and the CPU seconds of this process are added.
    """
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not come between
    serve()
    say.write(json.dumps({"ready": versions}) + "\n")
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        told = serve()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        say.write(json.dumps({"seconds": wall, "cpu_seconds": cpu, **told}) + "\n")
