"""Errors of Hydra and OmegaConf in one line: the value, the place, what is allowed."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass

from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from slotlab.errors import nearest
from slotlab.lab.config import Lab
from slotlab.lab.plugins import plugins
from slotlab.names import brief

ConfigError = (HydraException, OmegaConfBaseException)
KINDS = {  # what OmegaConf says, and what it would have taken
    r"(?s)to Integer|(?:type|subclass of) '?int": "a whole number",
    r"(?s)to Float|(?:type|subclass of) '?float": "a number",
    r"valid bool|(?:type|subclass of) '?bool": "true or false",
    r"to string|to String|(?:type|subclass of) '?str": "a word",
    r"expected one of \[(.*)\]": "one of {}",
    r"is not Optional": "a value, not null",
    r"not a ListConfig|DictConfig with ListConfig": "a list, as in [a,b]",
    r"subclass of '?(\w+)|is not a DictConfig|ListConfig with DictConfig|to DictConfig": "options, as in {{name: value}}",
}


def explain(error: BaseException) -> str:
    """One line for the user."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_choice(str(error.missing_cfg_file), list(error.options or []))
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        return _unknown_key(match[1], error)
    if match := re.search(r"Ambiguous value for argument '([^']+)'", text):
        return f"{match[1]}: several values; add -m to sweep over them, or write a list as [a,b]"
    if match := re.search(r"Missing mandatory value: (\S+)", text):
        return f"{match[1]}: must be set, as in {match[1]}=VALUE"
    if match := re.search(r"merging override (.+)", text):
        cause = str(error.__cause__ or text.split("\n", 1)[-1]).splitlines()[0]
        if "subclass of Modifier" in cause and (unchosen := re.match(r"\++modifier\.(\w+)", match[1])):
            return _unchosen_modifier(unchosen[1])
        return f"{brief(match[1])}: {wanted(cause)}"
    return " ".join(line.strip() for line in text.splitlines()[:2])


def wanted(cause: str) -> str:
    """What a value must be that OmegaConf refused for this cause."""
    for pattern, kind in KINDS.items():
        if match := re.search(pattern, cause):
            return f"must be {kind.format(*match.groups())}"
    return f"{cause[0].lower()}{cause[1:]}"


def _missing_choice(path: str, options: list[str]) -> str:
    group, _, name = path.rpartition("/")
    broken = [c for c in plugins().broken if c.name == name or name in (c.plugin, c.plugin.removeprefix("slotlab-"))]
    if broken:
        return f"{group}={name}: the plugin {broken[0].plugin} is broken: {broken[0].error}"
    other = "".join(f" (there is {place}={name})" for place, choice in plugins().choices if choice == name)
    faulty = f"; {len(plugins().broken)} more are broken, see `slotlab plugins`" if plugins().broken else ""
    return f"{group}={name}: no such choice{other}; {nearest(name, [*options, *plugins().names(group)])}{faulty}"


def _unchosen_modifier(name: str) -> str:
    names = plugins().names("modifier")
    advice = f"choose it too, as in modifier=[{name}]" if name in names else nearest(name, names)
    return f"modifier.{name}: not among the chosen modifiers; {advice}"


def _unknown_key(key: str, error: BaseException) -> str:
    cause: BaseException | None = error
    while cause and not isinstance(cause, OmegaConfBaseException):
        cause = cause.__cause__
    kind = getattr(cause, "object_type", None)
    full = str(getattr(cause, "full_key", None) or key)
    name = full.rpartition(".")[2]
    if kind is dict and full.startswith("modifier."):
        return _unchosen_modifier(name)
    if kind is dict:
        return f"{full}: no such entry; to add it, it must be +{full}=VALUE"
    if kind is Lab or not isinstance(kind, type) or not is_dataclass(kind):
        return f"{key}: no such option or group; {nearest(key, [*(f.name for f in fields(Lab)), 'experiment'])}"
    return f"{key}: {kind.__name__} has no option {name}; {nearest(name, [f.name for f in fields(kind)])}"
