"""Files that may have come to harm: one that cannot be read is one line that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slotlab.errors import UserError


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a parser raises at the file in `path`, as a UserError: it is no `kind`, and why not."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # each parser has exceptions of its own, and damage finds them all
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{path}: is no {kind} ({reason})") from error


def read_json(path: Path) -> Any:
    """The JSON in `path`; strict, so neither NaN nor infinity. Raises UserError."""
    with reading(path, "JSON"):
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant)


def refuse_constant(name: str) -> Any:
    """NaN and infinities are no JSON."""
    raise ValueError(f"it holds {name}")


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in the YAML file `path`, as plain values: what looks like an interpolation is none. Raises UserError."""
    import yaml

    with reading(path, "YAML"):
        return must_have(yaml.safe_load(path.read_text(encoding="utf-8")), {}, path)


def must_have(value: Any, kinds: Mapping[str, type | tuple[type, ...]], path: Path) -> dict[str, Any]:
    """`value`, if it is a mapping with an entry of the right kind for each of `kinds`; else a UserError about the file `path`."""
    if not isinstance(value, dict):
        raise UserError(f"{path}: must hold a mapping, and holds {_short(value)}")
    for name, kind in kinds.items():
        if name not in value:
            raise UserError(f"{path}: {name} is missing")
        if not isinstance(value[name], kind):
            wanted = kind.__name__ if isinstance(kind, type) else " or ".join(some.__name__ for some in kind)
            raise UserError(f"{path}: {name}={_short(value[name])}: must be a {wanted}")
    return value


def read_object(path: Path, kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The JSON object in `path`, with an entry of the right kind for each of `kinds`. Raises UserError."""
    return must_have(read_json(path), kinds, path)


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The JSON list of objects in `path`. Raises UserError."""
    rows = read_json(path)
    if not isinstance(rows, list):
        raise UserError(f"{path}: must hold a list, and holds {_short(rows)}")
    return [must_have(row, {}, path) for row in rows]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_file(path: str) -> bool:
    """Whether a file is there; nothing lies at what cannot be a path, such as one of a thousand letters."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
