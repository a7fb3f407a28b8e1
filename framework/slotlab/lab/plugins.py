"""The plugin host: finds plugins, checks what they offer, and hands it to Hydra."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy
from hydra.core.config_store import ConfigStore

from slotlab import hooks
from slotlab.engine import Engine, Model
from slotlab.errors import UserError
from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption
from slotlab.lab.offers import check_offer, summary, where
from slotlab.workload import Load, Workload

GROUPS: dict[str, tuple[str, type]] = {
    "slotlab_policies": ("policy", Policy),
    "slotlab_batchings": ("batching", Batching),
    "slotlab_admissions": ("admission", Admission),
    "slotlab_preemptions": ("preemption", Preemption),
    "slotlab_predictors": ("predictor", Predictor),
    "slotlab_modifiers": ("modifier", Modifier),
    "slotlab_workloads": ("workload", Workload),
    "slotlab_loads": ("load", Load),
    "slotlab_models": ("model", Model),
    "slotlab_engines": ("engine", Engine),
}


@dataclass(frozen=True)
class Choice:
    """One choice of a group, or (with `error`) what a plugin failed to offer."""

    group: str
    name: str
    plugin: str
    version: str
    where: str
    summary: str
    error: str | None = None


class Plugins:
    """The installed plugins. One that is broken is listed with its reason; it never stops the program."""

    def __init__(self) -> None:
        self.manager = pluggy.PluginManager(hooks.PROJECT)
        self.manager.add_hookspecs(hooks)
        self.choices: dict[tuple[str, str], Choice] = {}
        self.broken: list[Choice] = []
        self._versions: dict[str, str] = {}
        disabled = {name.strip() for name in os.environ.get("SLOTLAB_DISABLE_PLUGINS", "").split(",")}
        for point in self._entry_points():
            version = point.dist.version if point.dist else ""
            if point.name not in disabled:
                self._load(point.name, version, point.value, point.load)
        for path in filter(None, os.environ.get("SLOTLAB_PLUGIN_FILES", "").split(os.pathsep)):
            file = Path(path)
            if not file.is_file():
                raise UserError(f"SLOTLAB_PLUGIN_FILES={path}: no such file")
            if file.stem not in disabled:
                self._load(file.stem, "", str(file), lambda file=file: load_file(file))

    def _entry_points(self) -> Iterator[EntryPoint]:
        """Built-in plugins first, so that nobody can take their names; of several of one name, none."""
        found = sorted(entry_points(group=hooks.PROJECT), key=lambda point: (point.name != "builtin", point.name))
        for name, count in Counter(point.name for point in found).items():
            owners = sorted(f"{point.dist.name}" for point in found if point.name == name and point.dist)
            if count > 1 and len(set(owners)) > 1:
                self._refuse(name, "", "", f"the plugin name {name} is claimed by {' and '.join(owners)}: uninstall all but one")
            else:
                yield next(point for point in found if point.name == name)

    def _load(self, plugin: str, version: str, place: str, load: Any) -> None:
        if self.manager.has_plugin(plugin):
            self._refuse(plugin, version, place, f"the plugin name {plugin} is taken: rename one of the two")
            return
        try:
            module = load()
            self.manager.register(module, name=plugin)
            self.manager.check_pending()
        except (Exception, SystemExit) as error:  # somebody else's bug must not take the whole lab down
            if self.manager.has_plugin(plugin):
                self.manager.unregister(name=plugin)
            self._refuse(plugin, version, place, f"{type(error).__name__}: {error}")
            return
        self._versions[plugin] = version
        hooks_found = [caller for caller in self.manager.get_hookcallers(module) or [] if caller.has_spec()]
        if not hooks_found:
            self._refuse(plugin, version, place, "offers nothing: write `@hookimpl` above `def slotlab_policies():`")
        for caller in hooks_found:
            for impl in caller.get_hookimpls():
                if impl.plugin is module:
                    self._announce(plugin, caller.name, impl.function)

    def _announce(self, plugin: str, hook: str, function: Any) -> None:
        """Take over what one hook of one plugin returns."""
        group, base = GROUPS[hook]
        place = f"{function.__module__}:{function.__name__}"
        try:
            offers = function()
        except (Exception, SystemExit) as error:
            self._refuse(plugin, self._versions[plugin], place, f"{hook} raised {type(error).__name__}: {error}", group)
            return
        if not isinstance(offers, Mapping):
            reason = f"{hook} must return {{name: class or instance}}, and returned {offers!r}"
            self._refuse(plugin, self._versions[plugin], place, reason, group)
            return
        for name, node in offers.items():
            refusal = check_offer(name, node, base)
            if refusal is None and (taken := self.choices.get((group, name))):
                refusal = f"{group} {name} is offered by both {taken.plugin} and {plugin}"
            if refusal:
                self._refuse(plugin, self._versions[plugin], where(node), refusal, group, str(name))
                continue
            self.choices[group, name] = Choice(group, name, plugin, self._versions[plugin], where(node), summary(node))
            package = f"modifier.{name}" if base is Modifier else group  # of modifiers there may be several
            ConfigStore.instance().store(group=group, name=name, node=node, package=package, provider=plugin)

    def _refuse(self, plugin: str, version: str, place: str, reason: str, group: str = "", name: str = "") -> None:
        self.broken.append(Choice(group, name, plugin, version, place, "", " ".join(reason.split())))

    def names(self, group: str) -> list[str]:
        """The choices of a group."""
        return sorted(name for found, name in self.choices if found == group)

    def everything(self) -> list[Choice]:
        """All choices, by group and name, and then what is broken."""
        order = {group: i for i, (group, _) in enumerate(GROUPS.values())}
        return sorted(self.choices.values(), key=lambda c: (order[c.group], c.name)) + self.broken

    def versions(self) -> dict[str, str]:
        """Version by plugin: results depend on them."""
        return dict(self._versions)


def load_file(path: Path) -> ModuleType:
    """A plugin that is just a file: try an idea before making a package of it."""
    name = f"slotlab_plugin_{path.stem}"  # never the name of a module that somebody else imports
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def plugins() -> Plugins:
    """The plugins of this process; found once."""
    return Plugins()
