"""Reads the config.json of a Hugging Face model folder."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from slotlab_kernels.rope import LinearRope, Llama3Rope, RopeScaling, YarnRope
from slotlab_kernels.shape import LlamaShape, ModelFileError

CONFIG = "config.json"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""The values of model_type that the one forward pass computes. Llama 2 and 3 and SmolLM2 are `llama`."""

SCALINGS: dict[str, type[LinearRope | Llama3Rope | YarnRope]] = {"linear": LinearRope, "llama3": Llama3Rope, "yarn": YarnRope}
_NO_SCALING = {"rope_type", "type", "rope_theta"}


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelFileError if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ModelFileError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ModelFileError(f"{path}: holds no JSON object")
    return content


def folder_shape(folder: Path) -> LlamaShape:
    """The shape that `folder`/config.json describes; ModelFileError names what is missing or not supported."""
    path = folder / CONFIG
    config = read_json(path)
    try:
        _refuse_unsupported(config)
        return _shape(config)
    except KeyError as error:
        raise ModelFileError(f"{path}: has no {error}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelFileError(f"{path}: {error}") from None


def _shape(config: dict[str, Any]) -> LlamaShape:
    family, heads, positions = config["model_type"], config["num_attention_heads"], config["max_position_embeddings"]
    scaling = _scaling(config)
    if isinstance(scaling, YarnRope):  # the config tells how far the model reaches without it
        positions = max(positions, int(scaling.factor * scaling.original_max_position_embeddings))
    # where the family has a default of its own, a config that leaves the key out means that one
    head_dim = config.get("head_dim") or (128 if family == "qwen3" else config["hidden_size"] // heads)
    return LlamaShape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        intermediate=config["intermediate_size"],
        rope_theta=float(_rope(config).get("rope_theta", 10_000.0)),
        norm_eps=float(config["rms_norm_eps"]),
        max_context=positions,
        tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        window=(config.get("sliding_window", 4096) or 0) if family == "mistral" else 0,
        rope_scaling=scaling,
    )


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The RoPE settings: `rope_parameters` since transformers 5, keys of the config itself before."""
    old = {"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}
    return old | (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})


def _scaling(config: dict[str, Any]) -> RopeScaling | None:
    """The stretching of RoPE; ValueError names a kind or a setting that is not supported."""
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    settings = {key: value for key, value in rope.items() if key not in _NO_SCALING and value is not None}
    if settings.pop("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError("partial_rotary_factor is not supported; supported: 1.0")
    if kind == "default":
        return None
    if kind not in SCALINGS:
        raise ValueError(f"rope_scaling {kind!r} is not supported; supported: {', '.join(SCALINGS)}")
    known = {field.name: field.default is MISSING for field in fields(SCALINGS[kind])}
    if "original_max_position_embeddings" in known:
        settings.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
    for key in sorted(settings.keys() - known.keys()):
        raise ValueError(f"{key} of rope_scaling {kind!r} is not supported; supported: {', '.join(sorted(known))}")
    for key in (key for key, needed in known.items() if needed and key not in settings):
        raise ValueError(f"rope_scaling {kind!r} has no {key}")
    return SCALINGS[kind](**settings)


def _refuse_unsupported(config: dict[str, Any]) -> None:
    """ValueError for everything that the one forward pass does not compute."""
    if config.get("model_type") not in FAMILIES:
        raise ValueError(f"model_type {config.get('model_type')!r} is not supported; supported: {', '.join(FAMILIES)}")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act {config['hidden_act']!r} is not supported; supported: 'silu'")
    for key in ("attention_bias", "mlp_bias", "quantization_config", "use_sliding_window"):
        if config.get(key):
            raise ValueError(f"{key} is not supported")
    for kind in config.get("layer_types") or ():
        if kind != "full_attention":
            raise ValueError(f"layer_types {kind!r} is not supported; supported: 'full_attention'")
