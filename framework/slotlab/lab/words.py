"""The words of a command line: what a run or a sweep cannot obey is refused before Hydra sees it."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, IntervalSweep, Override, QuotedString, RangeSweep, Sweep
from hydra.errors import HydraException
from omegaconf import OmegaConf

from slotlab.errors import UserError
from slotlab.lab.config import conf_dir, flatten
from slotlab.lab.flags import read_flags, typed_flags
from slotlab.lab.plugins import GROUPS, plugins
from slotlab.names import brief
from slotlab.tracking import take_password

MAX_JOBS = 10_000  # each of which Hydra composes before the first runs
FOLDERS = {"hydra.run.dir": "run", "hydra.sweep.dir": "sweep"}  # what may be set of Hydra itself


@dataclass(frozen=True)
class Line:
    """A command line that can be obeyed. `many`: it is a sweep, by -m or by its experiment."""

    flags: Namespace
    overrides: Sequence[Override]
    many: bool

    @property
    def words(self) -> list[str]:
        """As Hydra takes them: flags first."""
        return [*typed_flags(self.flags), *self.flags.overrides]

    @property
    def swept(self) -> set[str]:
        """The keys that the line sweeps over."""
        return {override.key_or_group for override in self.overrides if override.is_sweep_override()}


def read_line(words: Sequence[str]) -> Line:
    """The words as Hydra will understand them. Raises UserError for what Hydra would drop, mistake or never end."""
    flags = read_flags([take_password(word) if word.lstrip("+").startswith("tracking") else word for word in words])
    if flags.shell_completion:  # its words are no overrides
        return Line(flags, (), many=False)
    overrides = [parse(word) for word in flags.overrides]
    for override in overrides:
        refuse_key(override)
        refuse_values(override)
    refuse_double(overrides)
    brought = brought_sweep(overrides)
    many = flags.multirun or brought is not None
    refuse_sweep(overrides, many, brought or {})
    return Line(flags, overrides, many)


def parse(word: str) -> Override:
    """One word."""
    try:
        override = OverridesParser.create().parse_override(word)
    except (HydraException, ValueError, RecursionError) as error:  # ValueError: thousands of digits
        reason = brief(" ".join(str(error).split()))
        raise UserError(f"{brief(word)}: must be GROUP=CHOICE or OPTION=VALUE, special characters in quotes ({reason})") from None
    if not override.key_or_group:
        raise UserError(f"{word}: must be GROUP=CHOICE or OPTION=VALUE")
    return override


def groups() -> set[str]:
    """The groups of choices."""
    return {group for group, _ in GROUPS.values()} | {"experiment"}


def choices(group: str) -> list[str]:
    """What plugins and presets offer in a group."""
    return sorted({*plugins().names(group), *(path.stem for path in Path(conf_dir(), group).glob("*.yaml"))})


def refuse_key(override: Override) -> None:
    """Keys that mean something else than one choice or one option of ours."""
    word, key = override.input_line, override.key_or_group
    if override.package is not None:
        raise UserError(f"{word}: must be without @, for each group has its place")
    if (key == "hydra" or override.is_hydra_override()) and key not in FOLDERS:
        raise UserError(f"{word}: of Hydra's own settings only {' and '.join(FOLDERS)} may be set, and -m given")
    if key in groups() and override.get_key_element() != key:
        raise UserError(f"{word}: must be one of {', '.join(choices(key))}, as in {key}=CHOICE")
    if override.is_delete() and "." not in key:
        raise UserError(f"{word}: it cannot be left out")


def values_of(override: Override) -> list[Any]:
    """What an override gives its key, in turn; of a range its ends alone, and of a pattern nothing."""
    value = override.value()
    if isinstance(value, ChoiceSweep):
        return [plain(item) for item in value.list]
    if isinstance(value, RangeSweep):
        return [value.start, value.stop]
    return [] if isinstance(value, Glob) or override.is_delete() else [value]


def plain(value: Any) -> Any:
    """An element of a sweep without Hydra's quotes."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value.text if isinstance(value, QuotedString) else value


def refuse_values(override: Override) -> None:
    """What no sweep of ours can enumerate, and values of a group that are no names of choices."""
    word, key, value = override.input_line, override.key_or_group, override.value()
    if isinstance(value, IntervalSweep):
        raise UserError(f"{word}: an interval has no end of values; must be choice(...) or range(START,STOP,STEP)")
    if isinstance(value, Sweep) and value.tags:
        raise UserError(f"{word}: tags are for other sweepers; must be without tag(...)")
    if key not in groups():
        return
    if key == "experiment" and (override.is_sweep_override() or isinstance(value, list)):
        raise UserError(f"{word}: one experiment at a time, for each brings a sweep of its own")
    for names in values_of(override):
        several = isinstance(names, list) and key == "modifier"
        for name in names if several else [names]:
            if not isinstance(name, dict) and not (isinstance(name, str) and re.fullmatch(r"[\w-]+", name)):
                advice = ", or a list as [aging,tenant_cap]" if key == "modifier" else ""
                raise UserError(f"{word}: must be one of {', '.join(choices(key))}{advice}")
        if several and len(names) > len(set(map(str, names))):
            raise UserError(f"{word}: a modifier may be chosen once")


def leaves(override: Override) -> set[str]:
    """The options that an override sets; of a choice, its group and `=`."""
    key, found = override.key_or_group, set[str]()
    for value in values_of(override) or [None]:
        found |= set(flatten(value, *key.split("."))) if isinstance(value, dict) or key not in groups() else {f"{key}="}
    return found


def refuse_double(overrides: Sequence[Override]) -> None:
    """Two words for one thing, of which one would vanish."""
    seen = list[tuple[Override, set[str]]]()
    for override in overrides:
        found = leaves(override)
        for other, before in seen:
            if other.key_or_group == override.key_or_group:
                raise UserError(f"{other.input_line} {override.input_line}: {other.key_or_group} must be given once")
            if twice := {leaf for leaf in found for name in before if overlap(leaf, name)}:
                raise UserError(f"{other.input_line} {override.input_line}: {min(twice)} must be given once")
        seen.append((override, found))


def overlap(one: str, other: str) -> bool:
    """Whether two dotted options are the same, or one contains the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def brought_sweep(overrides: Sequence[Override]) -> dict[str, str] | None:
    """What the chosen experiment sweeps over; None if it is no sweep."""
    names = [override.value() for override in overrides if override.key_or_group == "experiment"]
    path = Path(conf_dir(), "experiment", f"{names[0]}.yaml") if names else None
    if path is None or not path.is_file():
        return None
    settings = OmegaConf.select(OmegaConf.load(path), "hydra") or {}
    if settings.get("mode") != "MULTIRUN":
        return None
    return {str(key): str(value) for key, value in settings.get("sweeper", {}).get("params", {}).items()}


def refuse_sweep(overrides: Sequence[Override], many: bool, brought: dict[str, str]) -> None:
    """What does not fit a sweep, or a run that is none. A word takes the place of the experiment's own sweep of that option."""
    for override in overrides:
        word, key = override.input_line, override.key_or_group
        if key in FOLDERS and (FOLDERS[key] == "sweep") is not many:
            other = "hydra.sweep.dir" if many else "hydra.run.dir"
            raise UserError(f"{word}: the folder of {'a sweep' if many else 'a run'} is {other}")
        for swept in brought:
            leaf = f"{swept}=" if swept in groups() else swept
            if override.get_key_element() != swept and any(overlap(leaf, name) for name in leaves(override)):
                raise UserError(f"{word}: the experiment sweeps over {swept}; must be {swept}=VALUE, which replaces that sweep")
    jobs = prod(map(count, overrides))
    if jobs > MAX_JOBS:
        raise UserError(f"{' '.join(str(o.input_line) for o in overrides)}: the sweep must have at most {MAX_JOBS} jobs")


def count(override: Override) -> int:
    """How many values it sweeps over, or more than MAX_JOBS; of a pattern 1, whatever it matches."""
    value = override.value()
    if isinstance(value, RangeSweep):
        if not value.step:
            raise UserError(f"{override.input_line}: the step of a range must not be 0")
        return sum(1 for _ in islice(value.range(), MAX_JOBS + 1))
    return len(value.list) if isinstance(value, ChoiceSweep) else 1
