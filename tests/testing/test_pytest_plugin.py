"""What the kit adds to pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slotlab.testing.pytest_plugin import COST, is_cost, pytest_configure
from slotlab.testing.session import SESSION

POLICY = """
from dataclasses import dataclass
from slotlab import Policy
from slotlab.testing import check_policy
from slotlab.testing.session import SESSION

@dataclass
class Mine(Policy):
    pass

def test_mine_conforms():
    assert SESSION.examples == 7
    check_policy(Mine, max_bypass=0)
"""


def run(*words: str, folder: Path) -> str:
    """The output of Python in `folder`."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120).stdout


def test_a_session_takes_the_number_of_scenarios_and_ends_with_a_table_of_costs(tmp_path: Path):
    (tmp_path / "test_mine.py").write_text(POLICY)
    said = run("-m", "pytest", "-p", "no:cacheprovider", "--slotlab-examples=7", "test_mine.py", folder=tmp_path)
    assert "1 passed" in said, said
    row = next(line for line in said.splitlines() if line.startswith("Mine "))
    assert len(row.split()) == 6, "a name, four times and a number of calls"


def test_the_plugin_loads_nothing_heavy(tmp_path: Path):
    code = "import sys, slotlab.testing.pytest_plugin; print(sorted({'hypothesis', 'torch', 'hydra'} & set(sys.modules)))"
    assert run("-c", code, folder=tmp_path).strip() == "[]"


def test_without_hypothesis_one_line_says_what_to_install(tmp_path: Path):
    code = (
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'hypothesis' else find(name, *rest)\n"
        "try:\n    from slotlab.testing import check_policy\n"
        "except ImportError as error:\n    print(error)"
    )
    assert run("-c", code, folder=tmp_path).strip() == "slotlab.testing needs hypothesis: pip install 'slotlab[testing]'"


class Odd:
    """Like an array, which answers a comparison with another."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("entry", ["text", (), (COST,), (Odd(), 1), ("other", 1), None])
def test_what_other_plugins_leave_in_a_report_is_passed_over(entry: object):
    assert not is_cost(entry) and is_cost((COST, {})) and is_cost([COST, {}])


def test_no_scenarios_are_refused(monkeypatch: pytest.MonkeyPatch):
    config: Any = SimpleNamespace(getoption=lambda name: 0)
    monkeypatch.setattr(SESSION, "examples", SESSION.examples)
    with pytest.raises(pytest.UsageError, match="--slotlab-examples=0: must be at least 1"):
        pytest_configure(config)
