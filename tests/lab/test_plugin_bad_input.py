"""What authors and users of plugins get wrong: one line that says what, where, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore

from slotlab import Modifier, Policy, UserError, require
from slotlab.core.blocks import BlockPool
from slotlab.core.scheduler import Scheduler
from slotlab.lab import plugins as host
from slotlab.lab.offers import check_offer, summary

HEAD = """
from __future__ import annotations
from dataclasses import dataclass
from slotlab import Modifier, Policy, hookimpl, require

@dataclass
class Mine(Policy):
    "Mine."
    alpha: float = 1.0

    def __post_init__(self):
        require(self.alpha > 0, "alpha", self.alpha, "greater than 0")

@hookimpl
def slotlab_policies():
    return """
WANTED = "slotlab_policies must return {name: class or instance}, and returned "


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """The reasons why a plugin of these lines, after `HEAD`, is broken."""

    host.plugins()  # into the store, which is one per process
    monkeypatch.setitem(ConfigStore.instance().repo, "policy", dict(ConfigStore.instance().repo["policy"]))

    def load(text: str) -> list[str]:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text)
        monkeypatch.setenv("SLOTLAB_PLUGIN_FILES", str(path))
        found = host.Plugins()
        assert found.choices["policy", "fcfs"].plugin == "builtin"  # the lab goes on
        return [choice.error for choice in found.broken if choice.plugin == "mine"]

    return load


@pytest.mark.parametrize("answer", ["[]", "None", "'mine'", "''", "7", "Mine()"])
def test_a_hook_that_returns_something_else_is_told_what_it_must_return(broken, answer):
    shown = "Mine(alpha=1.0)" if answer == "Mine()" else answer
    assert broken(answer) == [f"{WANTED}{shown}"]


def test_pairs_are_no_mapping(broken):
    (reason,) = broken("[('mine', Mine)]")
    assert reason.startswith(WANTED)


def test_a_hook_that_raises_is_told_apart_from_one_that_answers_wrongly(broken):
    assert broken("{'mine': Nine}") == ["slotlab_policies raised NameError: name 'Nine' is not defined"]


def test_an_optional_hook_of_a_newer_version_is_passed_over(broken):
    """`optionalhook=True` is how one plugin serves several versions of slotlab."""
    newer = "@hookimpl(optionalhook=True)\ndef slotlab_of_tomorrow():\n    return {'mine': Mine}\n"
    assert broken("{'mine': Mine}\n\n" + newer) == []


@pytest.mark.parametrize(
    ("offer", "reason"),
    [
        ("'Mine'", "'Mine' is no Policy: offer a dataclass that derives from it, or an instance of one"),
        ("None", "None is no Policy: offer a dataclass that derives from it, or an instance of one"),
        ("object", "object does not derive from Policy: write `class object(Policy):`"),
        ("Modifier", "Modifier is a modifier, which wraps a policy: offer it in `slotlab_modifiers`"),
        (
            "type('Bare', (Mine,), {})",
            "Bare is not a dataclass itself, so its options would vanish: write `@dataclass` above the class",
        ),
        (
            "dataclass(type('Vague', (Mine,), {'__annotations__': {'beta': 'Number'}, 'beta': 1}))",
            "Vague: Hydra cannot hold its options: name 'Number' is not defined",
        ),
    ],
)
def test_an_offer_that_cannot_be_chosen_is_refused_with_what_to_write(broken, offer, reason):
    assert broken(f"{{'mine': {offer}, 'fine': Mine}}") == [reason]


@dataclass
class Picky(Policy):
    """Has no defaults that it would take."""

    alpha: float
    beta: float = -1.0

    def __post_init__(self) -> None:
        require(self.beta > 0, "beta", self.beta, "greater than 0")


def test_a_preset_of_a_class_that_refuses_its_own_defaults_is_listed():
    preset = Picky(alpha=2.0, beta=1.0)
    assert check_offer("picky", preset, Policy) is None
    assert summary(preset) == "Has no defaults that it would take. [alpha=2.0, beta=1.0]"


def test_a_modifier_around_nothing_says_how_it_is_chosen():
    line = r"Modifier wraps nothing: it is a modifier, to be chosen beside a policy, as in policy=fcfs modifier=\[...\]"
    for ask in (lambda: Modifier().inner, lambda: Modifier().lane(None), lambda: Scheduler(BlockPool(8, 1), Modifier())):
        with pytest.raises(UserError, match=line):
            ask()


SAID = [
    (["policy=sjf", "policy.aging=-1"], "policy.aging=-1.0: must be at least 0"),
    (["modifier=[aging]", "modifier.aging.after=-1"], "modifier.aging.after=-1.0: must be at least 0"),
    (
        ["modifier=[aging]", "modifier.tenant_cap.max_running=3"],
        "modifier.tenant_cap: not among the chosen modifiers; choose it too, as in modifier=[tenant_cap]",
    ),
    (
        ["modifier=[aging]", "+modifier.tenant_cap.max_running=3"],
        "modifier.tenant_cap: not among the chosen modifiers; choose it too, as in modifier=[tenant_cap]",
    ),
    (
        ["modifier=[aging]", "modifier.tenant_cup.max_running=3"],
        "modifier.tenant_cup: not among the chosen modifiers; did you mean tenant_cap? there is: aging, ",
    ),
    (["policy=aging"], "policy=aging: no such choice (there is modifier=aging); "),
    (["modifier=[fcfs]"], "modifier=fcfs: no such choice (there is policy=fcfs); "),
    (["workload.tenants=[{name: a, weight: 0}]"], "workload.tenants[a].weight=0.0: must be greater than 0 and at most 1e+09"),
    (["workload.tenants=[{name: a, weight: -2}]"], "workload.tenants[a].weight=-2.0: must be greater than 0 and at most 1e+09"),
    (
        ["workload.tenants=[{name: a, weight: null}]"],
        "workload.tenants=[{name: a, weight: null}]: must be a number",
    ),
]


@pytest.mark.parametrize(("words", "line"), SAID, ids=[" ".join(words) for words, _ in SAID])
def test_bad_words_get_one_line(slotlab, words, line):
    said = slotlab("engine=simulated", *words)
    assert said.code == 2
    assert said.err.startswith(f"slotlab: {line}") and said.err.count("\n") == 1, said.err


def test_a_tenant_without_a_weight_has_weight_one(slotlab):
    said = slotlab("engine=simulated", "workload.tenants=[{name: a}]", "workload.requests=4", "load.rates=[50]")
    assert said.code == 0, said.err
    assert "weight: 1.0" in Path(said.folder, "config.yaml").read_text()


def test_the_options_of_a_plugin_get_the_same_lines(slotlab, broken):
    assert broken("{'mine': Mine, 'must': Must}\n\n@dataclass\nclass Must(Policy):\n    beta: int") == []
    assert slotlab("policy=mine", "policy.alpha=0").err == "slotlab: policy.alpha=0.0: must be greater than 0\n"
    assert (
        slotlab("policy=mine", "policy.aplha=1").err
        == "slotlab: policy.aplha: Mine has no option aplha; did you mean alpha? there is: alpha\n"
    )
    assert slotlab("policy=must").err == "slotlab: policy.beta: must be set, as in policy.beta=VALUE\n"


@pytest.mark.parametrize(
    "word", ["modifier=[[aging]]", "modifier=[null]", "modifier=[1]", "modifier=[aging,aging]", "modifier=null"]
)
def test_a_list_of_something_else_than_modifiers_is_refused_in_one_line(slotlab, word):
    said = slotlab("engine=simulated", word)
    assert said.code == 2 and said.err.count("\n") == 1 and word in said.err
