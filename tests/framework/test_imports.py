"""Imports point one way, and finding the plugins loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS, KERNELS, FRAMEWORK = "slotlab_plugins", "slotlab_kernels", "slotlab"
RULES = [
    ("framework", "", {PLUGINS, KERNELS, "torch", "triton", "numba"}),
    ("framework", "slotlab/tracking", {"mlflow"}),
    ("kernels", "", {FRAMEWORK, PLUGINS, "mlflow", "hydra"}),
    ("plugins", "", {"mlflow"}),
]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level package of each import in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield node.lineno, first.value.split(".")[0]


def offences(root: Path, rules: Iterable[tuple[str, str, set[str]]]) -> list[str]:
    """`file:line imports package` for each import that its folder may not have."""
    found = []
    for folder, exempt, forbidden in rules:
        for path in sorted((root / folder).rglob("*.py")):
            inside = exempt and (root / folder / exempt) in path.parents
            bad = [] if inside else [(line, name) for line, name in imports(path) if name in forbidden]
            found += [f"{path.relative_to(root)}:{line} imports {name}" for line, name in bad]
    return found


def test_imports_point_one_way():
    assert not offences(ROOT, RULES)
    assert len(list((ROOT / "framework").rglob("*.py"))) > 20, "the walk found no files"


def test_an_import_against_the_grain_is_found_with_file_and_line(tmp_path: Path):
    file = tmp_path / "framework" / "slotlab" / "bad.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import math\n\ndef f():\n    from slotlab_plugins.policies import sjf\n    import torch.nn as nn\n    import mlflow\n"
    )
    tracking = tmp_path / "framework" / "slotlab" / "tracking" / "good.py"
    tracking.parent.mkdir()
    tracking.write_text("import mlflow\nimport importlib\nimportlib.import_module('torch')\n")
    assert offences(tmp_path, RULES) == [
        "framework/slotlab/bad.py:4 imports slotlab_plugins",
        "framework/slotlab/bad.py:5 imports torch",
        "framework/slotlab/tracking/good.py:3 imports torch",
        "framework/slotlab/bad.py:6 imports mlflow",
    ]


def test_finding_the_plugins_imports_nothing_heavy():
    code = """
import sys
from slotlab.lab.plugins import plugins
assert plugins().names("policy"), "no plugins were found"
heavy = {"torch", "pandas", "mlflow", "matplotlib", "numba", "triton", "pyarrow", "scipy", "transformers"}
print(",".join(sorted(heavy & set(sys.modules))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


def test_any_module_of_the_framework_can_be_the_first_one_imported():
    """A plugin may begin with `from slotlab.engine import Engine`."""
    names = sorted(f"slotlab.{path.stem}" for path in (ROOT / "framework" / "slotlab").glob("[a-z]*.py"))
    code = f"""
import sys, importlib
for name in {names}:
    for old in [old for old in sys.modules if old.split(".")[0] == "slotlab"]:
        del sys.modules[old]
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
