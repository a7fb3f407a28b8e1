"""Values of a JSON object that must be of a kind: KeyError if one is missing, ValueError names one of another kind."""

from collections.abc import Mapping
from typing import Any


def whole(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number of at least 1."""
    value = values[key] if default is None else values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} must be a whole number of at least 1, not {value!r}")
    return value


def number(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A finite number above 0."""
    value = values[key] if default is None else values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{key} must be a number above 0, not {value!r}")
    return float(value)


def flag(values: Mapping[str, Any], key: str) -> bool:
    """True or false; false if it is missing."""
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false, not {value!r}")
    return value
