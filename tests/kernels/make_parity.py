"""The logits that transformers computes for tiny models of every family: `python tests/kernels/make_parity.py` writes the file.

The models are not kept: their weights follow from their names, so that any machine can write them again, and the parity
test needs no transformers.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from slotlab_kernels.hf_config import folder_shape
from slotlab_kernels.weights import build_llama, random_tensor

EXPECTED = Path(__file__).parent / "data" / "parity.npz"
IDS = [(7 * i * i + 3) % 96 for i in range(45)]
ROWS = [0, 19, 30, 44]
"""The positions whose logits are kept."""

TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False, "sliding_window": 8}
_QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 24, "attention_bias": False}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": {},
    "llama3": {"rope_scaling": _LLAMA3, "rope_theta": 500000.0, "tie_word_embeddings": True},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.5}},
    "qwen2": _QWEN2 | {"rope_theta": 1000000.0, "tie_word_embeddings": True},
    "yarn": _QWEN2 | {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}},
    "qwen3": _QWEN3,
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 20, "head_dim": 24},
}
"""What each config has beyond TINY, as the released ones do."""


def write_model(folder: Path, family: str) -> None:
    """A model folder: random weights, norms among them."""
    tensors: dict[str, torch.Tensor] = {}

    def source(name: str, size: tuple[int, ...]) -> torch.Tensor:
        tensor = random_tensor(name, size, seed=7)
        tensors[name] = 1.0 + tensor if name.endswith("norm.weight") else tensor
        return tensors[name]

    (folder / "config.json").write_text(json.dumps(TINY | FAMILIES[family]))
    build_llama(folder_shape(folder), source, torch.device("cpu"), torch.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def transformers_logits(folder: Path) -> torch.Tensor:
    """Logits [T, V] of IDS by transformers: one sequence, no cache."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return model(torch.tensor([IDS]), use_cache=False).logits[0]


def main() -> None:
    import tempfile

    kept = {}
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            write_model(Path(folder), family)
            kept[family] = transformers_logits(Path(folder))[ROWS].numpy()
    EXPECTED.parent.mkdir(exist_ok=True)
    np.savez_compressed(EXPECTED, **kept)


if __name__ == "__main__":
    sys.exit(main())
