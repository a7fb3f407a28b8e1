"""What a plugin may offer: a dataclass derived from the group's base, or an instance of one."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from slotlab.errors import told
from slotlab.kinds import Modifier
from slotlab.names import shown

WORDS = ("false", "inf", "nan", "null", "true")  # which Hydra takes for values


def class_of(node: Any) -> type:
    """The class of an offer."""
    return node if isinstance(node, type) else type(node)


def where(node: Any) -> str:
    """The place of an offer, as `module:Class`."""
    cls = class_of(node)
    return f"{cls.__module__}:{cls.__qualname__}"


def summary(node: Any) -> str:
    """The first line of its docstring, and for a preset the options that it sets."""
    cls = class_of(node)
    doc = inspect.getdoc(cls) or ""
    line = doc.split("\n")[0] if not doc.startswith(f"{cls.__name__}(") else ""
    if isinstance(node, type):
        return shown(line)
    changed = [f"{f.name}={value}" for f in fields(node) if (value := getattr(node, f.name)) != default(f)]
    return shown(f"{line} [{', '.join(changed)}]" if changed else line)


def default(option: Field[Any]) -> Any:
    """What an option is if nobody sets it; MISSING if it must be set. A class may refuse its own defaults, so none is built."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def check_offer(name: object, node: Any, base: type) -> str | None:
    """Why it is refused, with the line to write; None if it is fine. Whatever the offer itself raises goes through."""
    cls = class_of(node)
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return f"{told(name)} is no name for a choice: use lower-case letters, digits and _"
    if name in WORDS:
        return f"{name} is no name for a choice: {', '.join(WORDS)} are values"
    if not isinstance(node, type) and not is_dataclass(cls) and not issubclass(cls, base):
        return f"{told(node)} is no {base.__name__}: offer a dataclass that derives from it, or an instance of one"
    if not issubclass(cls, base):
        return f"{cls.__qualname__} does not derive from {base.__name__}: write `class {cls.__name__}({base.__name__}):`"
    if issubclass(cls, Modifier) and base is not Modifier:
        return f"{cls.__qualname__} is a modifier, which wraps a policy: offer it in `slotlab_modifiers`"
    if not is_dataclass(cls) or "__dataclass_fields__" not in vars(cls):
        return f"{cls.__qualname__} is not a dataclass itself, so its options would vanish: write `@dataclass` above the class"
    return check_options(cls, base) or check_defaults(cls, node)


def check_options(cls: Any, base: type) -> str | None:
    """Why the name of an option is refused."""
    options = {f.name for f in fields(cls)}
    for option in sorted(options):
        if not re.fullmatch(r"[A-Za-z]\w*|_\w*[A-Za-z0-9]", option, re.ASCII) or option == "defaults":
            return f"{cls.__qualname__}.{option} is no name for an option, as Hydra reads it otherwise: use letters, digits and _"
        if option not in {f.name for f in fields(base)} and callable(getattr(base, option, None)):
            return f"{cls.__qualname__}.{option} is a method of {base.__name__}, not an option: choose another name"
    parents: list[Any] = [*filter(is_dataclass, cls.__mro__[1:])]
    for parent in parents:
        constants = set(vars(parent)["__dataclass_fields__"]) - {f.name for f in fields(parent)}
        if shadowed := sorted(options & constants):
            line = f"{shadowed[0]}: ClassVar = ..."
            return f"{cls.__qualname__}.{shadowed[0]} is a constant of {parent.__name__}, not an option: write `{line}`"
    return None


def check_defaults(cls: type, node: Any) -> str | None:
    """Why Hydra cannot hold what the options are or may be."""
    try:
        OmegaConf.structured(node)
    except (OmegaConfBaseException, NameError) as error:  # the second: a type that the module does not import
        return f"{cls.__qualname__}: Hydra cannot hold its options: {str(error).splitlines()[0]}"
    return None
