"""A sample of the bad values for all options; `python tests/lab/option_values.py FOLDER` tries them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = 60  # of some thousands
SCRIPT = Path(__file__).with_name("option_values.py")


def test_bad_values_of_any_option_are_refused_in_one_line_with_the_place_and_what_is_allowed(tmp_path):
    """In a process of its own, for it limits its memory and sets alarms."""
    done = subprocess.run([sys.executable, SCRIPT, tmp_path, str(SAMPLE)], capture_output=True, text=True, check=False)
    *faults, tally = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")] or [{}]
    assert tally.get("tried") == SAMPLE, done.stderr
    assert not faults, "\n".join(f"{fault['option']}={fault['value']}: {fault['fault']}" for fault in faults)


HUGE = [
    (["batching=dynamic", "batching.max_delay=1e30"], "batching.max_delay=1e+30: must be at least 0 and at most 1e+09"),
    (["admission=rate_limit", f"admission.limit={2**63}"], f"admission.limit={2**63}: must be at least 1 and at most 10000000"),
    ([f"load.repeats={10**25}"], f"load.repeats={10**25}: must be at least 1 and at most 1000"),
    (["policy=random", f"policy.seed={2**63}"], f"policy.seed={2**63}: must be from {-(2**63)} to {2**63 - 1}"),
    (
        ["workload=explicit", "workload.lengths=[2]", f"workload.priorities=[{2**63}]"],
        f"workload.priorities={2**63}: must be at least {-(2**31)} and at most {2**31 - 1}",
    ),
    (["policy=sjf", "policy.aging=" + "x" * 5000], "policy.aging=xxxx"),
    (["seed=" + "9" * 5000], "seed=9999"),
    (["batching=dynamic", "batching.preferred=[{a: 1}]"], "batching.preferred[0]={'a': 1}: must be a single value, of type int"),
    (["workload=azure", "workload.path=" + "x" * 5000], "workload.path=xxxx"),
]


@pytest.mark.parametrize(("words", "line"), HUGE, ids=[line[:40] for _, line in HUGE])
def test_a_huge_value_is_refused_at_composition_with_the_allowed_range(slotlab, words, line):
    said = slotlab("engine=simulated", *words)
    assert said.code == 2 and said.err.startswith(f"slotlab: {line}") and "must be " in said.err, said.err
    assert said.err.count("\n") == 1 and len(said.err) < 1000
