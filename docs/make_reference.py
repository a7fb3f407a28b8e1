"""Writes docs/reference/: `.venv/bin/python docs/make_reference.py`. A test fails where a page is not current.

What a page says comes from docstrings, signatures and the comments behind fields; only `PAGES` is written here.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import slotlab
import slotlab_plugins
from slotlab import hooks
from slotlab.lab.config import conf_dir
from slotlab.lab.offers import class_of, default, summary
from slotlab.lab.plugins import GROUPS
from slotlab.workload import Bench

HOME = Path(__file__).with_name("reference")


@dataclass(frozen=True)
class Page:
    """One file: what it is about, the names it explains, and the group whose choices it lists."""

    about: str
    names: tuple[str, ...]
    group: str | None = None
    note: str = ""


KEYS = "`Key` is a number, or a tuple of numbers that are compared one after the other: `Key = float | tuple[float, ...]`."
SERVED = """`Served` is what `served` is told, for each request of a step: the request, its prompt tokens computed for the first
time, its output tokens."""
PASSED_ON = "It has every method of [Policy](policy.md), and passes on to the policy that it wraps whatever you do not override."
READ = "Plugins read it; the one method for them that changes anything is `refresh`, for a policy in an event method."
PAGES = {
    "policy": Page("Who runs first, and who gives way", ("Policy", "Key", "Served"), "policy", f"{KEYS}\n\n{SERVED}"),
    "modifier": Page("What wraps the chosen policy", ("Modifier",), "modifier", PASSED_ON),
    "batching": Page("When requests join the running batch, and how many tokens each gets", ("Batching",), "batching"),
    "admission": Page("Who may queue, and how much KV is committed at the start", ("Admission",), "admission"),
    "preemption": Page("Whom to evict, and how", ("Preemption",), "preemption"),
    "predictor": Page("The output length that policies may read", ("Predictor",), "predictor"),
    "workload": Page("Which requests come, and when", ("Workload", "Arrival", "Tenant", "Streams"), "workload"),
    "load": Page("The points of the curve", ("Load", "Point", "Bench"), "load"),
    "engine": Page("What executes the plans", ("Engine", "Handle", "Done", "Plan", "Result", "RequestState"), "engine"),
    "model": Page("What a real engine runs", ("Model",), "model"),
    "decisions": Page(
        "What plugins answer",
        (
            *("Misfit", "Verdict", "Mode", "Phase", "StepBudget", "Open", "Closed", "Accept", "Reject", "Hold"),
            *("Need", "Evict", "Quiet", "FOREVER", "ONE_STEP"),
        ),
        note="`FOREVER` is `Quiet()`, and `ONE_STEP` is `Quiet(steps=1)`.",
    ),
    "view": Page("What plugins see of the scheduler", ("View",)),
    "waiting": Page("The queue", ("Waiting",), note=READ),
    "request": Page("What was asked, and how far it has come", ("Request", "RequestView", "Status")),
    "errors": Page(
        "What goes wrong, and the hook marker",
        ("UserError", "PluginError", "require", "hookimpl"),
        note="`hookimpl` marks a function of a plugin as a hook: `@hookimpl` above `def slotlab_policies():`.",
    ),
}
PLAIN = {"Key", "Served", "FOREVER", "ONE_STEP", "hookimpl"}  # told in a note
MADE = "Made by `docs/make_reference.py` from the code; do not edit.\n"


def page(name: str) -> str:
    """The text of one page."""
    spec = PAGES[name]
    parts = [f"# {name.capitalize()}: {spec.about[0].lower()}{spec.about[1:]}\n", MADE]
    if spec.group:
        parts += [offered(spec.group)]
    parts += [f"{spec.note}\n"] if spec.note else []
    for title in spec.names:
        if title not in PLAIN:
            parts += explained(title, Bench if title == "Bench" else getattr(slotlab, title))
    if spec.group:
        parts += [choices(spec.group)]
    return "\n".join(parts).rstrip() + "\n"


def offered(group: str) -> str:
    """How a plugin offers choices of this group."""
    hook = hook_of(group)
    written = f"{group}=[NAME,...]" if group == "modifier" else f"{group}=NAME"
    return f"Hook `{hook}`. {inspect.getdoc(getattr(hooks, hook))} On the command line: `{written}`.\n"


def hook_of(group: str) -> str:
    """The name of its hook."""
    return next(hook for hook, (name, _) in GROUPS.items() if name == group)


def explained(title: str, thing: Any) -> list[str]:
    """A section on a class or a function."""
    if not isinstance(thing, type):
        return [f"## `{title}{signature(thing)}`\n", told(thing), ""]
    lines = [f"## `{title}`\n", told(thing), ""]
    if issubclass(thing, Enum):
        return [*lines, *(f"- `{member.name}`: {member.value}" for member in thing), ""]
    if rows := list(attributes(thing)):
        lines += [*rows, ""]
    for name, member in vars(thing).items():
        if is_public(name) and (wrapped := function_of(member)) is not None and wrapped.__doc__:
            types = inspect.signature(wrapped)
            call = f"{name}: {types.return_annotation}" if isinstance(member, property) else f"{name}{signature(wrapped)}"
            lines += [f"**`{call}`**\n", told(wrapped), ""]
    return lines


def is_public(name: str) -> bool:
    """Whether users see it; of the special methods only those that are documented ways to use it."""
    return not name.startswith("_") or name in ("__call__", "__iter__")


def function_of(member: Any) -> Any:
    """The function behind a method, a property or a class method."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member) if inspect.isroutine(member) else None


def signature(function: Any) -> str:
    """As it is called, without `self` and without quotes around types."""
    text = str(inspect.signature(function)).replace("'", "")
    return re.sub(r"^\((self|cls)(, )?", "(", text)


def told(thing: Any) -> str:
    """Its docstring, unless Python wrote that."""
    doc = inspect.getdoc(thing) or ""
    return "" if doc.startswith(f"{getattr(thing, '__name__', '')}(") else doc


def attributes(cls: type) -> Iterator[str]:
    """Fields, constants, and properties without a docstring, with the comments behind them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef), f"{cls} is a class"
    source = textwrap.dedent(inspect.getsource(cls)).splitlines()
    for node in tree.body:
        comment = re.search(r"#\s*(.*)$", source[(node.end_lineno or 1) - 1])
        tail = f": {comment[1]}" if comment else ""
        if isinstance(node, ast.AnnAssign) and is_public(ast.unparse(node.target)):
            yield f"- `{ast.unparse(node)}`{tail}"
        elif isinstance(node, ast.FunctionDef) and node.decorator_list and not ast.get_docstring(node):
            yield f"- `{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}`{tail}"
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from assigned(node, source)


def assigned(init: ast.FunctionDef, source: list[str]) -> Iterator[str]:
    """What a constructor of a class that is no dataclass keeps for all to see, where a comment or a value tells what it is."""
    for node in ast.walk(init):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            comment = re.search(r"#\s*(.*)$", source[(target.end_lineno or 1) - 1])
            yield f"- `{target.attr}`{f': {comment[1]}' if comment else ''}"


def choices(group: str) -> str:
    """A table of the built-in choices, and the presets that are files."""
    base = GROUPS[hook_of(group)][1]
    rows = [
        f"| `{name}` | {options(node, base)} | {summary(node)} |"
        for name, node in sorted(getattr(slotlab_plugins, hook_of(group))().items())
    ]
    for path in sorted(Path(conf_dir(), group).glob("*.yaml")):
        notes = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ") and "@package" not in line]
        rows.append(f"| `{path.stem}` | preset | {notes[0] if notes else ''} |")
    return "\n".join(["## Built-in choices\n", "| choice | options | what it does |", "|---|---|---|", *rows, ""])


def options(node: Any, base: type) -> str:
    """The options that a choice adds to those of `base`, or whose default it changes, as they are typed."""
    if not isinstance(node, type):
        return f"preset of `{class_of(node).__name__}`"
    usual = {f.name: default(f) for f in fields(base)} if is_dataclass(base) else {}
    own = [f for f in fields(node) if f.name not in usual or usual[f.name] != default(f)]
    return ", ".join(f"`{f.name}={shown(default(f))}`" for f in own) or "-"


def shown(value: Any) -> str:
    """A default; of nested options only what is not usual."""
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if is_dataclass(value):
        return (
            "{" + ", ".join(f"{f.name}: {shown(v)}" for f in fields(value) if (v := getattr(value, f.name)) != default(f)) + "}"
        )
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return "?" if value is MISSING else str(value) if value != "" else "''"


def index() -> str:
    """The list of pages."""
    rows = [f"| [{name}]({name}.md) | {spec.about} | {', '.join(f'`{n}`' for n in spec.names)} |" for name, spec in PAGES.items()]
    return "\n".join(["# Reference\n", MADE, "| page | about | names |", "|---|---|---|", *rows, ""])


def files() -> dict[str, str]:
    """Every file of docs/reference/ by its name."""
    return {"README.md": index(), **{f"{name}.md": page(name) for name in PAGES}}


if __name__ == "__main__":
    HOME.mkdir(exist_ok=True)
    for name, text in files().items():
        (HOME / name).write_text(text)
