"""Whatever an installed plugin does, it is listed as broken with its reason, and the rest works."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from slotlab import Policy, UserError
from slotlab.errors import PluginError, blame
from slotlab.lab import plugins as host
from slotlab.lab.config import build_part
from slotlab.signals import Stopped

HEAD = """
from collections.abc import Mapping
from dataclasses import dataclass, field
from slotlab import Modifier, Policy, hookimpl

@dataclass
class Fine(Policy):
    "Fine."
    alpha: float = 1.0

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Faceless:
    def __repr__(self):
        raise RuntimeError("no face")

class Closed(type(Policy)):
    def __getattribute__(cls, name):
        raise RuntimeError("closed")

class Liar(Mapping):
    "Has one entry, says its length, and not which."
    __len__ = lambda self: 1
    __iter__ = lambda self: iter(["fine"])
    def __getitem__(self, key):
        raise KeyError(key)

class Endless(dict):
    def items(self):
        while True:
            yield "Fine", Fine

def fail(*_):
    raise RuntimeError("planted")
"""
HOOK = "\n@hookimpl\ndef slotlab_policies():\n    return "
MODULES = {  # which raise when they are imported
    "import pytest\npytest.skip('not here', allow_module_level=True)": "Skipped: not here",
    "raise SystemExit(3)": "SystemExit: 3",
    "raise GeneratorExit": "GeneratorExit:",
    "raise KeyboardInterrupt": "KeyboardInterrupt:",
    "raise BaseExceptionGroup('both', [SystemExit(3)])": "BaseExceptionGroup: both (1 sub-exception)",
    "raise Mute": "slotlab_plugin_mine.Mute, which raises when it is printed",
    "raise ValueError('one\\n\\x1b[31mtwo \\udcff')": r"ValueError: one \x1b[31mtwo \udcff",
    "raise ValueError('x' * 10 ** 6)": "ValueError: xxx",
    "import sys; sys.modules[__name__] = None; raise ValueError('gone')": "ValueError: gone",
}
ANSWERS = {  # of a hook
    "fail()": "slotlab_policies raised RuntimeError: planted",
    "(_ for _ in ()).throw(GeneratorExit)": "slotlab_policies raised GeneratorExit:",
    "Faceless()": "returned slotlab_plugin_mine.Faceless, which raises when it is printed",
    "Liar()": "slotlab_policies raised KeyError: 'fine'",
    "Endless()": "slotlab_policies must return at most 1000 choices",
    "{Faceless(): Fine}": "slotlab_plugin_mine.Faceless, which raises when it is printed is no name for a choice",
    "{'größe': Fine}": "'größe' is no name for a choice: use lower-case letters, digits and _",
    "{'null': Fine}": "null is no name for a choice: false, inf, nan, null, true are values",
    "{'sjf_oracle': Fine}": "policy sjf_oracle is the name of a preset, conf/policy/sjf_oracle.yaml: choose another",
    "{'mine': Faceless()}": "slotlab_plugin_mine.Faceless, which raises when it is printed is no Policy",
    "{'mine': Closed('C', (Policy,), {})}": "RuntimeError: closed",
}
OPTIONS = {  # lines of a class
    "beta: list[int] = field(default_factory=fail)": "RuntimeError: planted",
    "beta: float = Faceless()": "RuntimeError: no face",
    "beta: bytes = field(default_factory=object)": "is not of type 'bytes'",
    "beta: complex = 1j": "Hydra cannot hold its options",
    "defaults: int = 1": "Mine.defaults is no name for an option, as Hydra reads it otherwise",
    "_target_: str = 'os.system'": "Mine._target_ is no name for an option",
    "größe: int = 1": "Mine.größe is no name for an option",
    "key: int = 1": "Mine.key is a method of Policy, not an option: choose another name",
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], host.Plugins]]:
    """Host a plugin of these lines, after `HEAD`, as the process's own until the test ends."""
    host.plugins()  # into the store, which is one per process
    repo = ConfigStore.instance().repo
    for group, _ in host.GROUPS.values():
        monkeypatch.setitem(repo, group, dict(repo[group]))

    def hosted(text: str) -> host.Plugins:
        (tmp_path / "mine.py").write_text(HEAD + text)
        monkeypatch.setenv("SLOTLAB_PLUGIN_FILES", str(tmp_path / "mine.py"))
        host.plugins.cache_clear()
        assert host.plugins().choices["policy", "fcfs"].plugin == "builtin"
        return host.plugins()

    yield hosted
    host.plugins.cache_clear()


@pytest.mark.parametrize("text", MODULES)
def test_whatever_an_import_raises_is_one_line(load, text):
    (broken,) = load(text).broken
    assert str(broken.error).startswith(MODULES[text]) and str(broken.error).isprintable() and len(str(broken.error)) <= 1000


@pytest.mark.parametrize("answer", ANSWERS)
def test_whatever_a_hook_answers_or_raises_is_one_line(load, answer):
    found = load(HOOK + answer)
    assert ANSWERS[answer] in str(found.broken[0].error) and found.broken[0].plugin == "mine"


@pytest.mark.parametrize("line", OPTIONS)
def test_an_option_that_cannot_be_one_is_refused_and_its_neighbour_is_not(load, line):
    text = f"\n@dataclass\nclass Mine(Policy):\n    'Mine.'\n    {line}\n"
    found = load(text + HOOK + "{'mine': Mine, 'fine': Fine}")
    assert ("policy", "fine") in found.choices and OPTIONS[line] in str(found.broken[0].error)


ALL = r"""
@dataclass
class Dollar(Policy):
    r"Costs ${oc.env:HOME} and $5, [/red] and \${x}."

@dataclass
class Five(Policy):
    __doc__ = 5

@hookimpl
def slotlab_policies():
    return {"dollar": Dollar, "five": Five, "fcfs": Fine}

@hookimpl
def slotlab_modifiers():
    return {"none": dataclass(type("Empty", (Modifier,), {}))}

@hookimpl
def slotlab_workloads():
    return {"chat": Fine}
"""
UNIT = ["engine=simulated", "engine.cost=unit", "workload.requests=3", "load.rates=[1]"]


def test_a_run_of_fcfs_is_not_stopped_by_what_nobody_chose(slotlab, load):
    found = load(ALL)
    (none,) = (choice for choice in found.broken if choice.name == "none")
    assert none.error == "modifier none is the name of a preset, conf/modifier/none.yaml: choose another"
    assert slotlab("policy=fcfs", *UNIT).code == 0
    assert found.choices["policy", "five"].summary == "" and len(found.broken) == 3


def test_a_docstring_with_dollars_is_in_the_help_as_it_is(slotlab, load):
    load(ALL)
    said = slotlab("--help")
    assert said.code == 0 and "Costs ${oc.env:HOME} and $5, [/red] and \\${x}." in said.out


def test_strict_ends_with_1_after_the_listing_whatever_a_plugin_prints(slotlab, load):
    load("print('noise')\nraise Mute")
    strict = slotlab("plugins", "--json", "--strict")
    assert (strict.code, json.loads(strict.out)[-1]["plugin"], slotlab("plugins", "--json").code) == (1, "mine", 0)
    load(HOOK + "{'fine': Fine}")
    assert slotlab("plugins", "--strict").code == 0
    assert "the options are --json and --strict, each once" in slotlab("plugins", "--strict", "--strict").err


@pytest.mark.parametrize(
    ("points", "metadata", "reason"),
    [
        ("[slotlab]\nno equals sign\n", "Name: odd\nVersion: 1\n", "its entry_points.txt cannot be read: TypeError: "),
        ("[slotlab]\nodd = nowhere\n", "Version: 1\n", "ModuleNotFoundError: No module named 'nowhere'"),
        ("[slotlab]\nodd = nowhere\n", None, "ModuleNotFoundError: No module named 'nowhere'"),
        ("[console_scripts]\nno equals sign\n", "Name: odd\nVersion: 1\n", None),
    ],
)
def test_metadata_that_are_none_hide_no_plugin(tmp_path, monkeypatch, load, points, metadata, reason):
    folder = tmp_path / "odd-1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text(points)
    if metadata:
        (folder / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    errors = [str(choice.error) for choice in load(HOOK + "{'fine': Fine}").broken]
    assert [error.startswith(reason) for error in errors] == [True] if reason else errors == []


def test_a_signal_during_an_import_is_no_broken_plugin(load):
    with pytest.raises(Stopped):
        load("import signal\nfrom slotlab.signals import Stopped\nraise Stopped(signal.SIGTERM)")


@dataclass
class Skips(Policy):
    """Ends the test that asks it, were it not caught."""

    alpha: float = 1.0

    def __post_init__(self):
        if self.alpha < 0:
            pytest.skip("not negative")

    def key(self, req):
        pytest.skip("no key")


def test_a_plugin_that_skips_while_it_serves_is_blamed():
    policy = Skips()
    with pytest.raises(PluginError, match="Skips: key raised Skipped: no key"), blame(policy):
        policy.key(None)


def test_a_plugin_that_skips_while_it_is_built_is_one_line():
    node = OmegaConf.structured(Skips)
    node.alpha = -1.0
    with pytest.raises(UserError, match="policy: Skips could not be built: Skipped: not negative"):
        build_part(node, "policy")
