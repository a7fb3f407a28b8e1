"""The package to copy is installed, listed, run, swept and tested, as by a third party."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[2] / "plugins" / "template"
QUIET = ("engine=simulated", "tracking.kind=none", "workload.requests=8", "load.rates=[50]")
Python = Callable[..., str]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the template, outside the checkout."""
    unwanted = shutil.ignore_patterns("__pycache__", ".*")
    return Path(shutil.copytree(TEMPLATE, tmp_path_factory.mktemp("theirs") / "template", ignore=unwanted))


@pytest.fixture(scope="module")
def python(copy: Path) -> Python:
    """Runs Python in the copy's folder, with the copy installed beside slotlab; what it prints."""
    site = copy.parent / "site"
    paths = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    settings = {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLOTLAB_", "PYTEST_"))} | settings

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run("-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--target", str(site), ".")
    return run


def test_it_is_listed_under_its_own_name_and_version(python):
    rows = json.loads(python("-m", "slotlab", "plugins", "--json"))
    mine = {row["name"]: row for row in rows if row["plugin"] == "example"}
    assert sorted(mine) == ["prompt_window", "prompt_window_10s"]
    assert {(row["group"], row["version"], row["error"]) for row in mine.values()} == {("policy", "0.1.0", None)}
    assert mine["prompt_window_10s"]["summary"].endswith("[window=10.0]")
    assert not [row for row in rows if row["error"]]


def test_its_policies_run_beside_ours_in_one_sweep(python, copy):
    python("-m", "slotlab", "-m", "policy=fcfs,prompt_window_10s", *QUIET)
    python("-m", "slotlab", "policy=prompt_window", "policy.window=2", *QUIET)
    metas = [json.loads(path.read_text()) for path in sorted(copy.glob("slotlab-runs/**/meta.json"))]
    assert [meta["choices"]["policy"] for meta in metas] == ["fcfs", "prompt_window_10s", "prompt_window"]
    assert {meta["plugins"]["example"] for meta in metas} == {"0.1.0"}  # results depend on it


def test_its_own_tests_pass_with_few_examples(python):
    said = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "slotlab.testing.pytest_plugin", "--slotlab-examples=5")
    assert "5 passed" in said


def test_its_readme_names_what_there_is(copy):
    text = (copy / "README.md").read_text()
    for name in ("slotlab_example.py", "pyproject.toml", "tests/test_policy.py"):
        assert f"`{name}`" in text and (copy / name).is_file()
