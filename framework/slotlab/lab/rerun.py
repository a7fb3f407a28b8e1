"""`slotlab rerun RUN`: a run's requests again, under its own composition and load or under another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

from slotlab.errors import UserError
from slotlab.lab.app import run_app
from slotlab.lab.config import SCIENCE, conf_dir, literal
from slotlab.lab.plugins import GROUPS
from slotlab.reading import must_have, read_object, read_objects, read_yaml
from slotlab.record.arrivals import LOST

NAME = "rerun"  # of the composition that takes the place of conf/config.yaml
META = {"choices": dict, "weights": dict}


def rerun(words: list[str]) -> int:
    """Run what the run `words[0]` ran, but for what the other words ask. Raises UserError if there is no such run.

    The run's config is composed as it is stored, value by value; only what the user typed is parsed as words. `--lossy`:
    from its table of requests alone, where the record has no more.
    """
    lossy, rest = "--lossy" in words, [word for word in words if word != "--lossy"]
    folder = run_folder(rest, lossy)
    asked = {parsed.key_or_group for parsed in OverridesParser.create().parse_overrides([w for w in rest[1:] if w[:1] != "-"])}
    if "workload" in asked:
        raise UserError("rerun: workload: must be that of the run, whose requests are served again")
    ConfigStore.instance().store(name=NAME, node=composition(folder, asked, lossy), provider="slotlab")
    return run_app(rest[1:], NAME)


def run_folder(words: Sequence[str], lossy: bool) -> Path:
    """The folder that is named first: any path that exists."""
    path = Path(words[0]) if words else Path()
    if not words or (not path.exists() and ("=" in words[0] or words[0].startswith("-"))):
        raise UserError("rerun: must be followed by the folder of a run, as in `slotlab rerun slotlab-runs/... policy=sjf`")
    for name in ("meta.json", "config.yaml", "requests.parquet"):
        if not (path / name).is_file():
            raise UserError(f"rerun {words[0]}: must be the folder of a run (there is no {name} in it)")
    if not lossy and not (path / "arrivals.parquet").is_file():
        raise UserError(f"rerun {words[0]}: it has no arrivals.parquet, so {LOST} would be lost; --lossy serves what is left")
    return path.absolute()


def composition(folder: Path, asked: set[str], lossy: bool) -> dict[str, Any]:
    """conf/config.yaml with the choices and the values of the run in `folder`, but not those of groups that are `asked` for."""
    meta, path = read_object(folder / "meta.json", META), folder / "config.yaml"
    must_have(meta["choices"], {"load": str, "modifier": str}, folder / "meta.json")
    config = must_have(read_yaml(path), {"load": dict}, path)
    values = {key: config[key] for key in SCIENCE if key in config}
    choices = {group: choice for group, choice in meta["choices"].items() if group in values} | {"workload": "rerun"}
    values["workload"] = {"path": str(folder), "lossy": lossy, "weights": meta["weights"] if lossy else {}}
    choices["load"], values["load"] = again(choices["load"], values["load"], read_objects(folder / "curve.json"), lossy)
    choices["modifier"] = re.findall(r"\w+", choices["modifier"])
    base = read_yaml(Path(conf_dir(), "config.yaml"))
    groups = {group for group, _ in GROUPS.values()}
    kept = {key: literal(value) for key, value in values.items() if key not in groups & asked}
    return base | kept | {"defaults": [chosen(entry, choices) for entry in base["defaults"]]}


def again(choice: str, load: dict[str, Any], curve: Sequence[Mapping[str, Any]], lossy: bool) -> tuple[str, dict[str, Any]]:
    """The load that presses as the run's did, by name and options: rates that it measured are given."""
    common: dict[str, Any] = {name: load[name] for name in ("repeats", "max_seconds", "ref_rate") if name in load}
    if lossy:  # was spent in making the times
        return "native", common | {"ref_rate": None}
    rates = [row["rate"] for row in curve if "rate" in row]
    if load.get("rates") or not rates or len(rates) < len(curve):
        return choice, load
    return (choice, load | {"rates": rates}) if "rates" in load else ("rates", common | {"rates": rates})


def chosen(entry: Any, choices: Mapping[str, Any]) -> Any:
    """An entry of the list of defaults, with another choice if it is of a group in `choices`."""
    group = next(iter(entry)) if isinstance(entry, dict) else ""
    return {group: choices[group]} if group in choices else entry
