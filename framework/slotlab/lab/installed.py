"""Plugins that are installed as distributions: their entry points, in whatever state the metadata are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points

from slotlab.errors import guarded
from slotlab.hooks import PROJECT

NAMELESS = "a distribution without a name"


@dataclass(frozen=True)
class Installed:
    """An entry point of the group `slotlab`, or (with `error`) why there is none of that name."""

    name: str
    load: Callable[[], object]
    value: str = ""
    version: str = ""
    error: str | None = None


def installed() -> Iterator[Installed]:
    """Built-in plugins first, so that nobody can take their names; of several of one name, none."""
    points, unreadable = find_points()
    points.sort(key=lambda point: (point.name != "builtin", point.name))
    for name, count in Counter(point.name for point in points).items():
        owners = sorted({fact(point.dist, "name") for point in points if point.name == name})
        if count > 1 and len(owners) > 1:
            error = f"the plugin name {name} is claimed by {' and '.join(owners)}: uninstall all but one"
            yield Installed(name, list, error=error)
        else:
            point = next(point for point in points if point.name == name)
            yield Installed(name, point.load, point.value, fact(point.dist, "version"))
    yield from unreadable


def find_points() -> tuple[list[EntryPoint], list[Installed]]:
    """The entry points, and the distributions that hide theirs.

    One line without `=` in anybody's entry_points.txt costs `entry_points` everybody's; then each distribution is asked alone.
    """
    points, unreadable, troubles = list[EntryPoint](), list[Installed](), list[str]()
    with guarded(troubles.append):
        return [*entry_points(group=PROJECT)], []
    seen = set[str]()
    for dist in distributions():
        text, name = "", fact(dist, "name")

        def refuse(reason: str, name: str = name) -> None:
            unreadable.append(Installed(name, list, error=f"its entry_points.txt cannot be read: {reason}"))

        with guarded(troubles.append):
            text = dist.read_text("entry_points.txt") or ""
        if f"[{PROJECT}]" not in text or name in seen:  # of two copies of one the first on the path is imported
            continue
        with guarded(refuse):
            points += dist.entry_points.select(group=PROJECT)
        seen |= {name} - {NAMELESS}
    return points, unreadable


def fact(dist: Distribution | None, name: str) -> str:
    """The name or the version of a distribution whose metadata may lack it, or be no metadata."""
    value = None
    with guarded(lambda reason: None):
        value = getattr(dist, name)
    return str(value) if value else {"name": NAMELESS}.get(name, "")
