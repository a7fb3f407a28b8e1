"""The words of a command line: what a run or a sweep cannot obey is refused before Hydra sees it."""

from __future__ import annotations

import re
from pathlib import Path

from slotlab.errors import UserError
from slotlab.lab.config import conf_dir
from slotlab.lab.plugins import GROUPS, plugins


def refuse_words(words: list[str]) -> None:
    """What Hydra would answer with a traceback, or take for something else."""
    groups = {group for group, _ in GROUPS.values()}
    for word in words:
        key, equals, value = word.partition("=")
        group = key.lstrip("~")
        listed = value.startswith("[") and group != "modifier"  # of which there may be several
        if group in groups and (key != group or (equals and (value in ("null", "") or listed))):
            raise UserError(f"{word}: must be one of {', '.join(choices(group))}")
        if key == "modifier" and equals:
            refuse_modifiers(word, value)
        if key == "experiment" and "," in value:
            raise UserError(f"{word}: one experiment at a time, for each brings a sweep of its own")


def refuse_modifiers(word: str, value: str) -> None:
    """Lists of modifiers in which there is something else than names, or one twice."""
    for inner in re.findall(r"\[([^\]]*)\]?", value):
        names = [name.strip() for name in inner.split(",")] if inner else []
        if any(not re.fullmatch("[a-z][a-z0-9_]*", name) or name == "null" for name in names):
            raise UserError(f"{word}: must be one of {', '.join(choices('modifier'))}, or a list as [aging,tenant_cap]")
        if len({*names}) < len(names):
            raise UserError(f"{word}: a modifier may be chosen once")


def choices(group: str) -> list[str]:
    """What plugins and presets offer in a group."""
    return sorted({*plugins().names(group), *(path.stem for path in Path(conf_dir(), group).glob("*.yaml"))})
