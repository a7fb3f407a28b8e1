"""The policy by hand, and by the kit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from slotlab_example import PromptWindow

from slotlab import UserError
from slotlab.testing import check_policy


def slotlab(folder: Path, *words: str) -> str:
    """What the command says, run in `folder`."""
    command = [sys.executable, "-m", "slotlab", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_package_is_installed(tmp_path: Path) -> None:
    rows = json.loads(slotlab(tmp_path, "plugins", "--json"))
    mine = {row["name"]: row["error"] for row in rows if row["plugin"] == "example"}
    assert mine == {"prompt_window": None, "prompt_window_10s": None}


def test_a_schedule_worked_out_by_hand(tmp_path: Path) -> None:
    """One slot, and every step takes 1. Request 0 runs from 0 to 6; meanwhile the others come.

    Windows of 4: requests 1 and 2 are in the first one, where 2 has the shorter prompt. Request 3 has the shortest of
    all, but it came in the second window.
    """
    requests = ["workload.arrivals=[0,1,2,4]", "workload.prompts=[5,9,3,1]", "workload.lengths=[6,2,2,2]"]
    machine = ["engine=simulated", "engine.cost=unit", "batching.max_num_seqs=1", "tracking.kind=none"]
    slotlab(tmp_path, "policy=prompt_window", "policy.window=4", "workload=explicit", *requests, *machine)
    (table,) = tmp_path.glob("slotlab-runs/*/*/requests.parquet")
    assert list(pd.read_parquet(table)["first_token"]) == [1.0, 9.0, 7.0, 11.0]


def test_a_window_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"window=0\.0: must be greater than 0"):
        PromptWindow(window=0.0)


@pytest.mark.parametrize("policy", [PromptWindow, PromptWindow(window=10.0)], ids=["default", "10s"])
def test_it_keeps_the_contract(policy: object) -> None:
    check_policy(policy)
