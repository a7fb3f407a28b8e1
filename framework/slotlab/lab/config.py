"""The composed configuration, as typed objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf

from slotlab.engine import Engine, Model
from slotlab.errors import UserError, nearest, require, told
from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption
from slotlab.limits import NUMBER, WHOLE
from slotlab.names import brief, dotted
from slotlab.record.options import Record
from slotlab.record.slo import SLO
from slotlab.signals import Stopped
from slotlab.tracking import Tracking
from slotlab.workload import Load, Workload

SCHEDULING = ("policy", "modifier", "batching", "admission", "preemption", "predictor")
SCIENCE = (*SCHEDULING, "workload", "load", "model", "engine", "slo", "seed")


@dataclass
class Lab:
    """Everything that is composed: the schema of the configuration, and what `build` makes of it."""

    policy: Policy = MISSING
    batching: Batching = MISSING
    admission: Admission = MISSING
    preemption: Preemption = MISSING
    predictor: Predictor = MISSING
    modifier: dict[str, Modifier] = field(default_factory=dict)  # applied in this order: the last one is outermost
    workload: Workload = MISSING
    load: Load = MISSING
    model: Model = MISSING
    engine: Engine = MISSING
    slo: SLO = field(default_factory=SLO)
    record: Record = field(default_factory=Record)
    tracking: Tracking = field(default_factory=Tracking)
    seed: int = 0
    trial: int = 1  # numbers equal runs: it changes nothing, so what differs between trials is noise

    def modified_policy(self) -> Policy:
        """The policy inside its modifiers."""
        return reduce(lambda inner, modifier: modifier.around(inner), self.modifier.values(), self.policy)


ConfigStore.instance().store(name="schema", node=Lab, provider="slotlab")


def conf_dir() -> str:
    """conf/ as shipped in the wheel, else conf/ at the top of the checkout."""
    package = Path(__file__).parents[1]
    return str(next(folder for folder in (package / "conf", package.parents[1] / "conf") if folder.is_dir()))


def build(cfg: DictConfig) -> Lab:
    """The config as new objects. What is out of range is a `UserError` that names the option."""
    for key in set(map(str, cfg)) - {f.name for f in fields(Lab)}:
        raise UserError(f"{key}: no such option or group; {nearest(key, [f.name for f in fields(Lab)])}")
    parts = {}
    for group in (f.name for f in fields(Lab)):
        node = cfg.get(group)
        for path, message in strays(node, group):
            raise UserError(f"{path}: {message}")
        parts[group] = build_part(node, group)
        check_numbers(node, group)
    return Lab(**parts)


def check_numbers(node: Any, path: str) -> None:
    """Refuse numbers that no column holds and no clock tells; what is out of the range of its option, that has refused before."""
    if isinstance(node, bool) or not isinstance(node, int | float | DictConfig | ListConfig):
        return
    if isinstance(node, int):
        require(WHOLE[0] <= node <= WHOLE[1], path, node, f"from {WHOLE[0]} to {WHOLE[1]}")
    elif isinstance(node, float):
        require(-NUMBER <= node <= NUMBER, path, node, f"from {-NUMBER:g} to {NUMBER:g}")
    for key, child in children(node):
        check_numbers(child, f"{path}.{key}" if isinstance(node, DictConfig) else f"{path}[{key}]")


def build_part(node: Any, path: str) -> Any:
    """One group as an object; an error names the innermost option that is to blame."""
    for key, child in children(node):
        if isinstance(child, DictConfig | ListConfig):
            place = f"{path}.{key}" if isinstance(node, DictConfig) else f"{path}[{key}]"
            if isinstance(kind := node._metadata.element_type, type) and kind in (int, float, str, bool):
                raise UserError(f"{place}={brief(child)}: must be a single value, of type {kind.__name__}")
            build_part(child, place)
    if not isinstance(node, DictConfig | ListConfig):
        return node
    try:
        return OmegaConf.to_object(node)
    except ValueError as error:
        raise UserError(f"{path}.{error}") from None
    except (Stopped, KeyboardInterrupt):
        raise
    except BaseException as error:
        name = getattr(OmegaConf.get_type(node), "__name__", "it")
        raise UserError(f"{path}: {name} could not be built: {told(error)}") from error


def children(node: Any) -> Iterator[tuple[Any, Any]]:
    """The entries of a mapping or a list."""
    if isinstance(node, DictConfig):
        yield from node.items()
    elif isinstance(node, ListConfig):
        yield from enumerate(node)


def strays(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Keys that no class declares. Hydra's `+key=value` and `++key=value` let them through; we do not."""
    kind = OmegaConf.get_type(node) if isinstance(node, DictConfig) else None
    known = {f.name for f in fields(kind)} if kind is not None and is_dataclass(kind) else None
    for key, child in children(node):
        if kind is not None and known is not None and key not in known:
            advice = "to sweep choices with options of their own, use presets or two commands"
            yield f"{path}.{key}", f"{kind.__name__} has no such option; {nearest(str(key), known)}; {advice}"
        yield from strays(child, f"{path}.{key}")


def science(cfg: DictConfig) -> dict[str, Any]:
    """The part of the config that results depend on, as plain values."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items() if key in SCIENCE}


def flatten(value: Any, *way: str) -> dict[str, Any]:
    """Nested mappings as one, with dotted keys."""
    if not isinstance(value, dict) or (way and not value):
        return {dotted(*way): value}
    flat: dict[str, Any] = {}
    for key, child in value.items():
        flat |= flatten(child, *way, str(key))
    return flat


def literal(value: Any) -> Any:
    """A plain value as OmegaConf reads it back: `${` in a string begins no interpolation."""
    if isinstance(value, dict):
        return {key: literal(child) for key, child in value.items()}
    if isinstance(value, list):
        return [literal(child) for child in value]
    return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + r"\${", value) if isinstance(value, str) else value
