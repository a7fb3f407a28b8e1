"""Reads the config.json of a Hugging Face model folder."""

import json
from pathlib import Path
from typing import Any

from slotlab_kernels.hf_rope import rope
from slotlab_kernels.json_values import flag, number, whole
from slotlab_kernels.rope import YarnRope
from slotlab_kernels.shape import LlamaShape, ModelFileError

CONFIG = "config.json"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""The values of model_type that the one forward pass computes. Llama 2 and 3 and SmolLM2 are `llama`."""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ModelFileError if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
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
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{path}: {error}") from None


def _shape(config: dict[str, Any]) -> LlamaShape:
    """Where a family has a default of its own, a config that leaves the key out means that one."""
    family, heads, positions = (
        config["model_type"],
        whole(config, "num_attention_heads"),
        whole(config, "max_position_embeddings"),
    )
    theta, scaling = rope(config)
    if isinstance(scaling, YarnRope):  # the config tells how far the model reaches without it
        positions = max(positions, int(scaling.factor * scaling.original_max_position_embeddings))
    alike = family == "llama" and config.get("num_key_value_heads") is None
    return LlamaShape(
        vocab=whole(config, "vocab_size"),
        hidden=whole(config, "hidden_size"),
        layers=whole(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=heads if alike else whole(config, "num_key_value_heads"),
        head_dim=_head_dim(config),
        intermediate=whole(config, "intermediate_size"),
        rope_theta=theta,
        norm_eps=number(config, "rms_norm_eps"),
        max_context=positions,
        tied=flag(config, "tie_word_embeddings"),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        window=_window(config),
        rope_scaling=scaling,
    )


def _head_dim(config: dict[str, Any]) -> int:
    family, hidden, heads = config["model_type"], whole(config, "hidden_size"), whole(config, "num_attention_heads")
    if family == "qwen3":
        return whole(config, "head_dim", 128)
    given = config.get("head_dim") is not None
    if hidden % heads and (family == "llama" or not given):
        raise ValueError(f"hidden_size ({hidden}) must be a multiple of num_attention_heads ({heads})")
    return whole(config, "head_dim") if given else hidden // heads


def _window(config: dict[str, Any]) -> int:
    """Only Mistral's layers obey it."""
    mistral = config["model_type"] == "mistral"
    if config.get("sliding_window", 4096) is None:
        return 0
    window = whole(config, "sliding_window", 4096)
    return window if mistral else 0


def _refuse_unsupported(config: dict[str, Any]) -> None:
    """ValueError for everything that the one forward pass does not compute."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"model_type {family!r} is not supported; supported: {', '.join(FAMILIES)}")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act {config['hidden_act']!r} is not supported; supported: 'silu'")
    for key in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if flag(config, key):
            raise ValueError(f"{key} is not supported")
    for key in ("quantization_config", "compression_config", "text_config"):
        if config.get(key) is not None:
            raise ValueError(f"{key} is not supported")
    kinds = config.get("layer_types")
    if kinds is not None and (family == "mistral" or kinds != ["full_attention"] * whole(config, "num_hidden_layers")):
        raise ValueError(f"layer_types {kinds!r} is not supported; supported: 'full_attention' for every layer, not for mistral")
