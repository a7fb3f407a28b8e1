"""Any causal language model of Hugging Face transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotlab import Model, require
from slotlab_plugins.models.llama import WEIGHTS, complain


@dataclass
class Transformers(Model):
    """A Hugging Face folder at `path`, run by transformers' own layers around our attention: slower than model=folder, for
    what that does not know.

    Needs `pip install 'transformers>=5'`. Models whose attention is not the plain causal one are refused by name. `weights`:
    `auto` (those of the folder) or `dummy` (random ones for its config).
    """

    path: str | None = None
    weights: str = "auto"

    def __post_init__(self) -> None:
        require(self.path is not None, "path", self.path, "the path of a folder")
        require(self.weights in WEIGHTS, "weights", self.weights, " or ".join(WEIGHTS))

    def folder(self) -> Path:
        """Where the model lies."""
        return Path(str(self.path))

    def max_context(self) -> int:
        from slotlab_kernels.hf_load import hf_max_context

        return complain(lambda: hf_max_context(self.folder()), "model=transformers")

    def origin(self) -> str:
        from slotlab_kernels.hf_load import hf_version

        weights = self.path if self.weights == "auto" else f"random, shape of {self.path}"
        return f"{weights}, in the layers of transformers {complain(hf_version, 'model=transformers')}: slower than our own"

    def load(self, device: Any, dtype: Any) -> Any:
        from slotlab_kernels.hf_load import load_hf

        return complain(lambda: load_hf(self.folder(), device, dtype, self.weights == "dummy"), "model=transformers")

    def tokenizer(self) -> Any:
        from slotlab_kernels.tokenizer import load_tokenizer

        return complain(lambda: load_tokenizer(self.folder()), "model=transformers")


CHOICES = {"transformers": Transformers}
