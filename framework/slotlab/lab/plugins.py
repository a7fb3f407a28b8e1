"""The plugin host: finds plugins, checks what they offer, and hands it to Hydra."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy
from hydra.core.config_store import ConfigStore

from slotlab import hooks
from slotlab.engine import Engine, Model
from slotlab.errors import UserError, guarded, told
from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption
from slotlab.lab.config import conf_dir
from slotlab.lab.installed import installed
from slotlab.lab.offers import check_offer, summary, where
from slotlab.names import shown
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
MAX_OFFERS = 1000  # of one hook: a mapping may have no end


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
        self.choices: dict[tuple[str, str], Choice] = {}
        self.broken: list[Choice] = []
        self._versions: dict[str, str] = {}
        disabled = {name.strip() for name in os.environ.get("SLOTLAB_DISABLE_PLUGINS", "").split(",")}
        for point in installed():
            if point.error:
                self._refuse(point.name, point.version, point.value, point.error)
            elif point.name not in disabled:
                self._load(point.name, point.version, point.value, point.load)
        for path in filter(None, os.environ.get("SLOTLAB_PLUGIN_FILES", "").split(os.pathsep)):
            file = Path(path)
            if not file.is_file():
                raise UserError(f"SLOTLAB_PLUGIN_FILES={path}: no such file")
            if file.stem not in disabled:
                self._load(file.stem, "", str(file), partial(load_file, file))

    def _load(self, plugin: str, version: str, place: str, load: Callable[[], object]) -> None:
        if plugin in self._versions:
            self._refuse(plugin, version, place, f"the plugin name {plugin} is taken: rename one of the two")
            return
        found = None
        with guarded(lambda reason: self._refuse(plugin, version, place, reason)):
            found = hooks_of(plugin, load())
        if found is None:
            return
        self._versions[plugin] = version
        if not found:
            self._refuse(plugin, version, place, "offers nothing: write `@hookimpl` above `def slotlab_policies():`")
        for hook, function in found:
            self._announce(plugin, hook, function)

    def _announce(self, plugin: str, hook: str, function: Callable[[], object]) -> None:
        """Take over what one hook of one plugin returns."""
        version, place, offers = self._versions[plugin], plugin, list[tuple[object, object]]()
        with guarded(lambda reason: self._refuse(plugin, version, place, f"{hook} raised {reason}", GROUPS[hook][0])):
            place = f"{function.__module__}:{function.__name__}"
            answer = function()
            refusal = None
            if not isinstance(answer, Mapping):
                refusal = f"{hook} must return {{name: class or instance}}, and returned {told(answer)}"
            elif len(found := [(name, node) for name, node in islice(answer.items(), MAX_OFFERS + 1)]) > MAX_OFFERS:
                refusal = f"{hook} must return at most {MAX_OFFERS} choices"
            else:
                offers = found
            if refusal:
                self._refuse(plugin, version, place, refusal, GROUPS[hook][0])
        for name, node in offers:
            self._take(plugin, hook, place, name, node)

    def _take(self, plugin: str, hook: str, place: str, name: object, node: Any) -> None:
        """Make one offer a choice, or list why it cannot be one."""
        (group, base), version = GROUPS[hook], self._versions[plugin]

        def refuse(reason: str) -> None:
            self._refuse(plugin, version, place, reason, group, name if isinstance(name, str) else told(name))

        with guarded(refuse):
            place = where(node)
            refusal = check_offer(name, node, base)
            if refusal is None and Path(conf_dir(), group, f"{name}.yaml").exists():
                refusal = f"{group} {name} is the name of a preset, conf/{group}/{name}.yaml: choose another"
            if refusal is None and (taken := self.choices.get((group, str(name)))):
                refusal = f"{group} {name} is offered by both {taken.plugin} and {plugin}"
            if refusal:
                refuse(refusal)
                return
            choice = Choice(group, str(name), plugin, version, place, summary(node))
            package = f"modifier.{name}" if base is Modifier else group  # of modifiers there may be several
            ConfigStore.instance().store(group=group, name=choice.name, node=node, package=package, provider=plugin)
            self.choices[group, choice.name] = choice

    def _refuse(self, plugin: str, version: str, place: str, reason: str, group: str = "", name: str = "") -> None:
        self.broken.append(Choice(*map(shown, (group, name, plugin, version, place, "", " ".join(reason.split())))))

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


def hooks_of(plugin: str, module: object) -> list[tuple[str, Callable[[], object]]]:
    """The hooks that a plugin implements, by name. In a manager of its own: no plugin meets what another did."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(module, name=plugin)
    manager.check_pending()
    callers = [caller for caller in manager.get_hookcallers(module) or [] if caller.has_spec()]
    return [(caller.name, impl.function) for caller in callers for impl in caller.get_hookimpls()]


def load_file(path: Path) -> ModuleType:
    """A plugin that is just a file: try an idea before making a package of it."""
    name = f"slotlab_plugin_{path.stem}"  # never the name of a module that somebody else imports
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # half of it is there
        raise
    return module


@cache
def plugins() -> Plugins:
    """The plugins of this process; found once."""
    with redirect_stdout(sys.stderr):  # what a plugin prints is no part of a listing
        return Plugins()
