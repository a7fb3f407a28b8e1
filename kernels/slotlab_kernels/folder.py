"""Loads the weights of a Hugging Face folder: safetensors, one file or several with an index."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from slotlab_kernels.hf_config import folder_shape, read_json
from slotlab_kernels.llama import Llama
from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.weights import build_llama

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def load_folder(path: str | Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """The model in a folder of config.json and safetensors. ModelFileError names the file and tensor that are wrong."""
    folder = Path(path)
    shape = folder_shape(folder)
    tensors = _FolderTensors(folder)
    model = build_llama(shape, tensors.get, device, dtype)
    tensors.check_all_used(tied=shape.tied)
    return model


class _FolderTensors:
    """The tensors of all safetensors files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[Path, Any] = {}
        self.places = self._places()
        self.used: set[str] = set()

    def get(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        if name not in self.places:
            raise ModelFileError(f"{self.folder}: has no tensor {name}")
        path = self.places[name]
        file = self._open(path)
        try:
            tensor: torch.Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelFileError(f"{path}: tensor {name} cannot be read ({error})") from None
        if tuple(tensor.shape) != size:
            raise ModelFileError(f"{path}: tensor {name} has shape {list(tensor.shape)}, expected {list(size)}")
        if tensor.dtype not in _DTYPES:
            raise ModelFileError(f"{path}: tensor {name} is {tensor.dtype}; supported: float32, float16, bfloat16")
        self.used.add(name)
        return tensor

    def check_all_used(self, tied: bool) -> None:
        """A tensor that nobody asked for means an architecture that the forward pass does not compute."""
        copies = {"lm_head.weight"} if tied else set()
        for name in sorted(self.places.keys() - self.used - copies):
            if not name.endswith("rotary_emb.inv_freq"):  # old checkpoints save this table
                raise ModelFileError(f"{self.places[name]}: tensor {name} is not known to this architecture")

    def _places(self) -> dict[str, Path]:
        single, index = self.folder / _SINGLE, self.folder / _INDEX
        if single.is_file():
            return dict.fromkeys(self._open(single).keys(), single)
        if not index.is_file():
            raise ModelFileError(f"{self.folder}: has neither {_SINGLE} nor {_INDEX}")
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelFileError(f"{index}: has no weight_map")
        return {name: self.folder / str(file) for name, file in weight_map.items()}

    def _open(self, path: Path) -> Any:
        if path not in self.files:
            try:
                self.files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path}: is not a readable safetensors file ({error})") from None
        return self.files[path]
