"""The plugin host: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from slotlab import Policy, Predictor, hookimpl
from slotlab.lab import installed as source
from slotlab.lab import plugins as host
from slotlab.lab.offers import check_offer

LIFO = """
from dataclasses import dataclass
from slotlab import Policy, hookimpl

@dataclass
class LIFO(Policy):
    "Last come, first served."
    jitter: float = 0.0

    def key(self, req):
        return -req.arrival

@hookimpl
def slotlab_policies():
    return {"latest": LIFO, "latest_jittery": LIFO(jitter=0.5)}
"""


@pytest.fixture
def plugin_file(tmp_path, monkeypatch):
    """Write a single-file plugin, and name it in the environment."""

    def write(text: str, name: str = "mine.py") -> None:
        (tmp_path / name).write_text(text)
        monkeypatch.setenv("SLOTLAB_PLUGIN_FILES", str(tmp_path / name))

    return write


def test_a_single_file_is_a_plugin(plugin_file):
    plugin_file(LIFO, "latest.py")
    found = host.Plugins()
    assert found.choices["policy", "latest"].summary == "Last come, first served."
    assert found.choices["policy", "latest_jittery"].summary == "Last come, first served. [jitter=0.5]"
    assert found.choices["policy", "latest"].plugin == "latest" and not found.broken


def test_a_disabled_plugin_offers_nothing(plugin_file, monkeypatch):
    plugin_file(LIFO, "latest.py")
    monkeypatch.setenv("SLOTLAB_DISABLE_PLUGINS", "latest, other")
    assert ("policy", "latest") not in host.Plugins().choices


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1", "offers nothing: write `@hookimpl` above `def slotlab_policies():`"),
        (LIFO.replace("slotlab_policies", "slotlab_policy"), "unknown hook 'slotlab_policy'"),
        (LIFO.replace('return {"latest"', 'return 1 or {"latest"'), "slotlab_policies must return {name: class or instance}"),
        (LIFO.replace('"latest"', '"fcfs"'), "policy fcfs is offered by both builtin and mine"),
        (LIFO.replace('"latest"', '"Li Fo"'), "'Li Fo' is no name for a choice"),
        (LIFO.replace("jitter: float", "jitter: complex"), "Hydra cannot hold its options"),
        (LIFO.replace("@dataclass\n", "").replace("LIFO(jitter=0.5)", "LIFO"), "write `@dataclass` above the class"),
    ],
)
def test_what_is_broken_is_listed_with_its_reason_and_the_rest_works(plugin_file, text, reason):
    plugin_file(text)
    found = host.Plugins()
    assert any(reason in (choice.error or "") for choice in found.broken), found.broken
    assert found.choices["policy", "fcfs"].plugin == "builtin"


def test_a_plugin_file_never_takes_the_place_of_another_module(plugin_file):
    import random

    plugin_file(LIFO, "random.py")
    assert ("policy", "latest") in host.Plugins().choices and sys.modules["random"] is random


def test_a_plugin_that_exits_does_not_take_the_lab_down(plugin_file):
    plugin_file("raise SystemExit(3)")
    (broken,) = host.Plugins().broken
    assert broken.error == "SystemExit: 3"


def test_a_plugin_file_with_a_name_that_is_taken_is_refused(plugin_file):
    plugin_file(LIFO, "builtin.py")
    found = host.Plugins()
    assert found.broken[0].error == "the plugin name builtin is taken: rename one of the two"
    assert found.choices["policy", "fcfs"].plugin == "builtin"


def test_choosing_from_a_broken_plugin_says_why_it_is_broken(slotlab, plugin_file, monkeypatch):
    plugin_file("import nothing_of_that_name", "wild.py")
    monkeypatch.setattr("slotlab.lab.complaints.plugins", host.Plugins)
    said = slotlab("policy=wild")
    assert said.code == 2
    assert "policy=wild: the plugin wild is broken: ModuleNotFoundError" in said.err


def test_a_missing_plugin_file_is_named(monkeypatch):
    monkeypatch.setenv("SLOTLAB_PLUGIN_FILES", "nowhere.py")
    with pytest.raises(ValueError, match=r"SLOTLAB_PLUGIN_FILES=nowhere\.py: no such file"):
        host.Plugins()


def test_two_distributions_that_claim_one_plugin_name_are_both_named(monkeypatch):
    """pluggy would skip the second in silence (pluggy _manager.py)."""

    def point(dist: str) -> Any:
        return SimpleNamespace(name="fair", value="fair", dist=SimpleNamespace(name=dist, version="1"), load=None)

    monkeypatch.setattr(source, "entry_points", lambda group: [point("slotlab-a"), point("slotlab-b")])
    (broken,) = host.Plugins().broken
    assert broken.error == "the plugin name fair is claimed by slotlab-a and slotlab-b: uninstall all but one"


def test_third_parties_cannot_take_a_name_from_the_built_ins(monkeypatch):
    """Whatever the order of the entry points (hydra#2453: the last writer wins in silence)."""
    builtin = next(iter(source.entry_points(group="slotlab")))
    module = SimpleNamespace(slotlab_policies=hookimpl(lambda: {"sjf": OkPolicy}))
    theirs = SimpleNamespace(name="a_first", value="x", dist=SimpleNamespace(name="slotlab-x", version="3"), load=lambda: module)
    monkeypatch.setattr(source, "entry_points", lambda group: [theirs, builtin])
    found = host.Plugins()
    assert found.choices["policy", "sjf"].plugin == "builtin"
    assert [choice.version for choice in found.broken] == ["3"]


@dataclass
class OkPolicy(Policy):
    options: dict[str, float] = field(default_factory=dict)


@dataclass
class Shadow(Predictor):
    oracle: bool = True  # type: ignore[misc]


@dataclass
class Truthful(Predictor):
    oracle: ClassVar[bool] = True


def test_an_option_that_shadows_a_constant_is_refused_with_the_line_to_write():
    assert check_offer("ok", OkPolicy, Policy) is None
    assert check_offer("ok", OkPolicy({"a": 1.0}), Policy) is None
    assert check_offer("ok", Truthful, Predictor) is None
    refusal = check_offer("shadow", Shadow, Predictor)
    assert refusal == "Shadow.oracle is a constant of Predictor, not an option: write `oracle: ClassVar = ...`"
    assert "does not derive from Policy" in str(check_offer("x", Truthful, Policy))


def test_plugins_are_listed_as_json(slotlab):
    said = slotlab("plugins", "--json")
    rows = json.loads(said.out)
    assert said.code == 0
    assert all(set(row) == {"group", "name", "plugin", "version", "where", "summary", "error"} for row in rows)
    vtc = next(row for row in rows if row["name"] == "vtc")
    assert (vtc["group"], vtc["plugin"], vtc["error"]) == ("policy", "builtin", None)
    assert vtc["where"] == "slotlab_plugins.policies.vtc:VTC"
    assert "vtc" in slotlab("plugins").out
