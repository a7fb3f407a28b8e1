"""docs/writing-a-policy.md: its files are written, its commands run, and its classes keep the contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slotlab import Modifier
from slotlab.testing import check_modifier, check_policy

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "writing-a-policy.md").read_text()
PRESETS: dict[str, dict[str, Any]] = {"KeepFree": {"blocks": 3}, "NewestUnlessLate": {"late": 2.0}}
CLAIMS: dict[str, dict[str, Any]] = {"KeepFree": {"work_conserving": False}}


class Snippets(NamedTuple):
    """The guide's code: files by name, and commands in their order."""

    files: dict[str, str]
    commands: str


def snippets() -> Snippets:
    """Python goes to the file that its first line names, or that the one before named; what is for the shell is one script."""
    files: dict[str, str] = {}
    commands, name = "", ""
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        assert language in ("python", "sh"), f"nobody runs a snippet of {language or 'no language'}"
        if language == "sh":
            commands += code
            continue
        if title := re.match(r"# (\S+\.py)\n", code):
            name = title[1]
        files[name] = files.get(name, "") + code
    return Snippets(files, commands)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the guide."""
    place = tmp_path_factory.mktemp("guide")
    for name, code in snippets().files.items():
        (place / name).write_text(code)
    return place


def test_the_commands_do_what_the_guide_says(folder):
    settings = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p slotlab.testing.pytest_plugin -p no:cacheprovider --slotlab-examples=5",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-e"], input=snippets().commands, cwd=folder, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"policy *│ prompt_window *│ prompt_window ", done.stdout)  # listed, by the name of its file
    assert re.search(r"^prompt_window against fcfs: ", done.stdout, re.MULTILINE)
    assert "1 passed" in done.stdout
    assert len(list(folder.glob("slotlab-runs/*/*/curves.png"))) == 1 and len(list(folder.glob("slotlab-runs/**/curve.png"))) == 4


def test_the_classes_of_the_contract_conform(folder):
    name = "guide_contract"
    spec = spec_from_file_location(name, folder / "contract.py")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name]
    assert len(found) == 5
    for cls in found:
        check = check_modifier if issubclass(cls, Modifier) else check_policy
        check(cls(**PRESETS.get(cls.__name__, {})), examples=20, **CLAIMS.get(cls.__name__, {}))


def test_the_template_is_the_guide_s_policy(folder):
    """The same class, but for types and a longer docstring."""
    template = (ROOT / "plugins" / "template" / "slotlab_example.py").read_text()
    guide = (folder / "prompt_window.py").read_text()
    for line in ("class PromptWindow(Policy):", "window: float = 1.0", "return req.arrival // self.window, req.prompt_tokens"):
        assert line in template and line in guide


@pytest.mark.parametrize("page", ["writing-a-policy.md", "versioning.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs" / page).read_text()):
        assert (ROOT / "docs" / target).is_file(), target
