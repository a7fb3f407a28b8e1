"""`slotlab rerun RUN`: a run's requests again, at the same times, under its own composition or under another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from slotlab.errors import UserError
from slotlab.lab.app import run_app
from slotlab.lab.config import SCIENCE
from slotlab.lab.folder import read_json
from slotlab.lab.plugins import GROUPS


def rerun(words: list[str]) -> int:
    """`slotlab rerun RUN [words]`: the exit code of the run that `rerun_words` asks for."""
    return run_app(rerun_words(words))


def rerun_words(words: Sequence[str]) -> list[str]:
    """The words of a run that serves what the run `words[0]` served.

    Choices and options are those of that run, except in the groups for which the other words name a choice; its load was
    spent in making the times. Raises UserError if there is no such run.
    """
    if not words or "=" in words[0] or words[0].startswith("-"):
        raise UserError("rerun: must be followed by the folder of a run, as in `slotlab rerun slotlab-runs/... policy=sjf`")
    folder, others = Path(words[0]).absolute(), list(words[1:])
    for name in ("meta.json", "config.yaml", "requests.parquet"):
        if not (folder / name).is_file():
            raise UserError(f"rerun {words[0]}: must be the folder of a run (there is no {name} in it)")
    config = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.load(folder / "config.yaml")))
    asked = {word.partition("=")[0].lstrip("+") for word in others}
    own = [*composition(read_json(folder / "meta.json")["choices"], config, {*asked, "workload", "load"})]
    own += ["load=native", "workload=rerun", f"workload.path={quoted(str(folder))}", *weights(config["workload"])]
    return [*(word for word in own if word.partition("=")[0] not in asked), *others]  # the last word counts


def composition(choices: Mapping[str, str], config: Mapping[str, Any], but: set[str]) -> Iterator[str]:
    """The choice of each group, and its options; without the groups `but`."""
    groups = {group for group, _ in GROUPS.values()}
    for key in SCIENCE:
        if key not in but and key in config:
            if key in groups:
                yield f"{key}={choices[key]}"
            value = config[key]
            options = {f"{key}.{name}": option for name, option in value.items()} if isinstance(value, dict) else {key: value}
            yield from map(word_for, options, options.values())


def weights(workload: Mapping[str, Any]) -> list[str]:
    """What the tenants weighed: it is in the config alone."""
    tenants = {tenant["name"]: tenant["weight"] for tenant in workload.get("tenants", ()) if isinstance(tenant, dict)}
    found = {name: weight for name, weight in {**workload.get("weights", {}), **tenants}.items() if weight != 1}
    return [word_for("workload.weights", found)] if found else []


def word_for(name: str, value: Any) -> str:
    """`name=value`; keys of a mapping that are not there yet ask Hydra for `++`."""
    return f"{'++' if isinstance(value, dict) and value else ''}{name}={quoted(value)}"


def quoted(value: Any) -> str:
    """A value in the grammar of Hydra's command line."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{quoted(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(quoted, value)) + "]"
    return json.dumps(value)
