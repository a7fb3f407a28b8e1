"""Loads any causal language model that transformers can, and refuses by name what our attention cannot serve.

Transformers is no dependency: without it nothing here runs, and the error says how to install it.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from slotlab_kernels.hf_model import INTERFACE, HFModel, interface
from slotlab_kernels.hf_proof import prove
from slotlab_kernels.shape import ModelFileError

INSTALL = "pip install 'transformers>=5'"


def hf_version() -> str:
    """The version of transformers; ModelFileError if it is missing or too old."""
    return str(_transformers().__version__)


def hf_max_context(path: Path) -> int:
    """The positions that the config of the folder allows, without loading weights."""
    return _positions(path, _config(path))


def load_hf(path: Path, device: torch.device, dtype: torch.dtype, dummy: bool = False) -> HFModel:
    """The model in a folder, with random weights if `dummy`. ModelFileError names a class that cannot be served, and why."""
    config = _config(path)
    _refuse_unsupported(path, config)
    model = _build(path, config, dtype, dummy).to(device).eval()
    name = type(model).__name__
    wanted = {"position_ids", "logits_to_keep"} - inspect.signature(model.forward).parameters.keys()
    if wanted or not model._can_set_attn_implementation():
        raise ModelFileError(f"{path}: {name} does not take its attention from transformers' AttentionInterface")
    try:
        _transformers().AttentionInterface.register(INTERFACE, interface)
        return prove(model, _positions(path, config), device, dtype)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {name} cannot be served: {error}") from None
    except Exception as error:  # of the model's own code
        raise ModelFileError(f"{path}: {name} cannot be served ({_line(error)})") from error


def _transformers() -> Any:
    try:
        transformers = import_module("transformers")
    except ImportError:
        raise ModelFileError(f"transformers is not installed: {INSTALL}") from None
    if int(transformers.__version__.split(".")[0]) < 5:
        raise ModelFileError(f"transformers {transformers.__version__} is too old: {INSTALL}")
    return transformers


def _config(path: Path) -> Any:
    transformers = _transformers()
    if not (path / "config.json").is_file():
        raise ModelFileError(f"{path / 'config.json'}: does not exist")
    try:
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True).get_text_config()
    except Exception as error:  # transformers raises whatever its own checks raise
        raise ModelFileError(f"{path}: transformers cannot read its config ({_line(error)})") from None


def _build(path: Path, config: Any, dtype: torch.dtype, dummy: bool) -> Any:
    transformers = _transformers()
    loader = transformers.AutoModelForCausalLM
    transformers.utils.logging.disable_progress_bar()
    try:
        if dummy:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                return loader.from_config(config, dtype=dtype, attn_implementation="eager")
        how = {"attn_implementation": "eager", "local_files_only": True, "output_loading_info": True}
        model, found = loader.from_pretrained(path, dtype=dtype, **how)
    except Exception as error:  # as above
        raise ModelFileError(f"{path}: transformers cannot load it ({_line(error)})") from None
    for name in sorted(found["missing_keys"]):  # transformers fills them with random numbers
        raise ModelFileError(f"{path}: has no tensor {name}")
    for name in sorted(found["unexpected_keys"]):  # and leaves these out
        raise ModelFileError(f"{path}: tensor {name} is not known to {type(model).__name__}")
    return model


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"


def _positions(path: Path, config: Any) -> int:
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        raise ModelFileError(f"{path}: its config names no max_position_embeddings")
    return positions


def _refuse_unsupported(path: Path, config: Any) -> None:
    """ModelFileError for what a config tells and the attention function does not see."""
    for kind in getattr(config, "layer_types", None) or ():
        if kind not in ("full_attention", "sliding_attention"):
            raise ModelFileError(f"{path}: {config.model_type} has layers of {kind}; supported: full and sliding attention")
    for kind in _rope_types(getattr(config, "rope_parameters", None) or {}):
        if kind in ("dynamic", "longrope"):
            raise ModelFileError(f"{path}: rope_scaling {kind!r} is not supported: it would depend on the rest of the batch")


def _rope_types(parameters: dict[str, Any]) -> Iterator[str]:
    """That of all layers, or those by the kind of layer."""
    for value in (parameters, *parameters.values()):
        if isinstance(value, dict) and "rope_type" in value:
            yield value["rope_type"]
