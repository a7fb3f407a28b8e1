"""What a config.json says of RoPE: `rope_parameters` since transformers 5, before that keys of the config and `rope_scaling`."""

from dataclasses import MISSING, fields
from typing import Any

from slotlab_kernels.json_values import number
from slotlab_kernels.rope import LinearRope, Llama3Rope, RopeScaling, YarnRope

SCALINGS: dict[str, type[LinearRope | Llama3Rope | YarnRope]] = {"linear": LinearRope, "llama3": Llama3Rope, "yarn": YarnRope}
_ORIGINAL = "original_max_position_embeddings"


def rope(config: dict[str, Any]) -> tuple[float, RopeScaling | None]:
    """Theta and the stretching; ValueError names a kind or a setting that is not supported."""
    key = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"  # so does transformers
    settings = config.get(key) or {}
    if not isinstance(settings, dict) or any(isinstance(value, dict) for value in settings.values()):
        raise ValueError(f"{key} must be one object for all layers, not {settings!r}")
    theta = number({"rope_theta": 10_000.0} | config | settings, "rope_theta")
    for part in (config, settings):
        if part.get("partial_rotary_factor", 1.0) != 1.0:
            raise ValueError("partial_rotary_factor is not supported; supported: 1.0")
    return theta, _scaling(settings, config)


def _scaling(settings: dict[str, Any], config: dict[str, Any]) -> RopeScaling | None:
    kind = settings.get("rope_type", settings.get("type", "default"))
    if kind == "default":
        return None
    if not isinstance(kind, str) or kind not in SCALINGS:
        raise ValueError(f"rope_scaling {kind!r} is not supported; supported: {', '.join(SCALINGS)}")
    known = {field.name: field.default is MISSING for field in fields(SCALINGS[kind])}
    others = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    given = {key: value for key, value in settings.items() if key not in others and (value is not None or key == _ORIGINAL)}
    if _ORIGINAL in known:
        given = {_ORIGINAL: config["max_position_embeddings"]} | given
        given |= {_ORIGINAL: config[_ORIGINAL]} if _ORIGINAL in config else {}  # so does transformers
    for key in sorted(given.keys() - known.keys()):
        raise ValueError(f"{key} of rope_scaling {kind!r} is not supported; supported: {', '.join(sorted(known))}")
    for key in (key for key, needed in known.items() if needed and given.get(key) is None):
        raise ValueError(f"rope_scaling {kind!r} has no {key}")
    return SCALINGS[kind](**given)
