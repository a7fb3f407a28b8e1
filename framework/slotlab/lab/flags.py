"""Words with dashes: those that a run takes, in full and once; every other is refused in one line."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from slotlab.errors import UserError

INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class Flags(ArgumentParser):
    """argparse, but what it cannot obey is a UserError, and nothing is abbreviated."""

    def error(self, message: str) -> NoReturn:
        """One line."""
        flags = ", ".join(sorted(action.option_strings[-1] for action in self._actions if action.option_strings))
        raise UserError(f"{message} (the flags are {flags})")


class Once(Action):
    """A value that a second one does not replace in silence."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, flag: str | None = None) -> None:
        """Keep it."""
        if getattr(namespace, self.dest) != self.default:
            parser.error(f"{flag} {values}: may be given once")
        setattr(namespace, self.dest, values)


def read_flags(words: Sequence[str]) -> Namespace:
    """What a run takes of Hydra's flags (not those that read another configuration, or unpickle one), and the `overrides`."""
    flags = Flags(add_help=False, allow_abbrev=False)
    flags.add_argument("overrides", nargs="*")
    flags.add_argument("-m", "--multirun", action="store_true")
    flags.add_argument("-h", "--help", action="store_true")
    flags.add_argument("-c", "--cfg", action=Once, choices=("job", "hydra", "all"))
    flags.add_argument("-p", "--package", action=Once)
    flags.add_argument("--resolve", action="store_true")
    flags.add_argument("-i", "--info", action=Once, nargs="?", const="all", choices=INFO)
    flags.add_argument("-sc", "--shell-completion", action="store_true")
    found = flags.parse_intermixed_args(words)
    if found.cfg is None and (found.package or found.resolve):
        flags.error("--package and --resolve: must follow --cfg, as in --cfg job --resolve")
    return found


def typed_flags(flags: Namespace) -> list[str]:
    """The flags in the words that Hydra knows."""
    found = []
    for name, value in vars(flags).items():
        if name != "overrides" and value not in (None, False):
            found += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    return found
