"""Runs the cases in Triton's interpreter: a JSON line [name, error or ""] for each, at once, as a case may kill the process."""

from __future__ import annotations

import json
import os
import sys
import traceback
from functools import partial

assert os.environ.get("TRITON_INTERPRET") == "1", "set it before the kernels are imported"

import attention_cases  # noqa: E402, F401
import row_cases  # noqa: E402, F401
import runner_cases  # noqa: E402, F401
import sampling_cases  # noqa: E402, F401
import torch  # noqa: E402
from casebook import CASES  # noqa: E402

say = partial(print, flush=True)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or CASES:
        try:
            CASES[name]()
            say(json.dumps([name, ""]))
        except Exception:
            say(json.dumps([name, traceback.format_exc()]))
        finally:
            torch.use_deterministic_algorithms(False)


if __name__ == "__main__":
    main(sys.argv[1:])
