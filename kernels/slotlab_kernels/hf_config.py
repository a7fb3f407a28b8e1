"""Reads the config.json of a Hugging Face model folder."""

import json
from pathlib import Path
from typing import Any

from slotlab_kernels.shape import LlamaShape, ModelFileError

CONFIG = "config.json"


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
    _refuse_unsupported(path, config)
    try:
        heads = config["num_attention_heads"]
        return LlamaShape(
            vocab=config["vocab_size"],
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            intermediate=config["intermediate_size"],
            rope_theta=float(_rope(config).get("rope_theta", 10_000.0)),
            norm_eps=float(config["rms_norm_eps"]),
            max_context=config["max_position_embeddings"],
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise ModelFileError(f"{path}: has no {error}") from None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelFileError(f"{path}: {error}") from None


def folder_eos(folder: Path) -> int | None:
    """The end-of-sequence token of the folder's config, the first one where it lists several; None if it names none."""
    eos = read_json(folder / CONFIG).get("eos_token_id")
    if isinstance(eos, list):
        eos = eos[0] if eos else None
    if eos is not None and not isinstance(eos, int):
        raise ModelFileError(f"{folder / CONFIG}: eos_token_id is {eos!r}, not a token id")
    return eos


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """The RoPE settings: `rope_parameters` since transformers 5, keys of the config itself before."""
    old = {"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}
    return old | (config.get("rope_scaling") or {}) | (config.get("rope_parameters") or {})


def _refuse_unsupported(path: Path, config: dict[str, Any]) -> None:
    """ModelFileError for everything that the one forward pass does not compute."""
    if config.get("model_type") != "llama":
        raise ModelFileError(f"{path}: model_type {config.get('model_type')!r} is not supported; supported: 'llama'")
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ModelFileError(f"{path}: rope_scaling {kind!r} is not supported yet; supported: none")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelFileError(f"{path}: hidden_act {config['hidden_act']!r} is not supported; supported: 'silu'")
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if config.get(key):
            raise ModelFileError(f"{path}: {key} is not supported")
