"""What a check raises."""

from __future__ import annotations


class Nonconformance(AssertionError):
    """A plugin breaks a rule of its contract. The first line names the plugin, the rule and what happened."""

    def __init__(self, plugin: str, rule: str, what: str, scenario: object = None) -> None:
        where = "" if scenario is None else f"\n  the smallest scenario found: {scenario}"
        super().__init__(f"{plugin} breaks the rule `{rule}`: {what}{where}")
        self.plugin, self.rule, self.what = plugin, rule, what

    def at(self, scenario: object) -> Nonconformance:
        """The same fault, and the scenario that shows it."""
        return Nonconformance(self.plugin, self.rule, self.what, scenario)
