"""The requests that everybody serves, and the weights that everybody loads."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

REQUESTS, SLOTS, TOKENS_PER_STEP, THREADS = 64, 32, 2048, 2
PROMPTS, OUTPUTS = range(32, 256), range(16, 128)
VOCAB = 49152


@dataclass(frozen=True)
class Job:
    """One request: random token ids, and how many tokens to emit, whatever they are."""

    prompt: list[int]
    output: int


def draw(seed: int) -> list[Job]:
    """All requests, the same for a seed."""
    rng = random.Random(seed)
    return [Job(rng.choices(range(VOCAB), k=rng.choice(PROMPTS)), rng.choice(OUTPUTS)) for _ in range(REQUESTS)]


def write(jobs: list[Job], path: Path) -> None:
    """As a file that a process of another environment can read."""
    path.write_text(json.dumps([asdict(job) for job in jobs]))


def read(path: Path) -> list[Job]:
    """What `write` wrote."""
    return [Job(**job) for job in json.loads(path.read_text())]


def export_weights(folder: Path) -> None:
    """SmolLM2-135M, dequantised to bf16 as `model=smollm2` loads it, as a Hugging Face folder."""
    import torch
    from safetensors.torch import save_file

    from slotlab_plugins.models.llama import SmolLM2

    model = SmolLM2().load(torch.device("cpu"), torch.bfloat16)
    shape, tensors = model.shape, {"model.embed_tokens.weight": model.embedding_VC, "model.norm.weight": model.norm_C}
    sizes = [shape.heads * shape.head_dim, *[shape.kv_heads * shape.head_dim] * 2]
    for index, layer in enumerate(model.layers):
        at = f"model.layers.{index}."
        for name, weight in zip("qkv", layer.qkv_HC.split(sizes), strict=True):
            tensors[f"{at}self_attn.{name}_proj.weight"] = weight
        for name, weight in zip(("gate", "up"), layer.gate_up_FC.chunk(2), strict=True):
            tensors[f"{at}mlp.{name}_proj.weight"] = weight
        tensors[f"{at}self_attn.o_proj.weight"] = layer.output_CH
        tensors[f"{at}mlp.down_proj.weight"] = layer.down_CF
        tensors[f"{at}input_layernorm.weight"] = layer.attention_norm_C
        tensors[f"{at}post_attention_layernorm.weight"] = layer.mlp_norm_C
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: w.contiguous().clone() for k, w in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
