import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from slotlab_kernels.batch import Row
from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.folder import load_folder
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.rope import LinearRope, Llama3Rope, YarnRope
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY, LlamaShape, ModelFileError
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
UNTIED = replace(TINY, tied=False)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def config_of(shape: LlamaShape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_context,
        "tie_word_embeddings": shape.tied,
        "rope_scaling": None,
        "eos_token_id": 2,
    }


def tensors_of(model: Llama) -> dict[str, torch.Tensor]:
    """The weights by their Hugging Face names, the fused ones taken apart."""
    shape = model.shape
    tensors = {"model.embed_tokens.weight": model.embedding_VC, "model.norm.weight": model.norm_C}
    if not shape.tied:
        tensors["lm_head.weight"] = model.head_VC
    sizes = [heads * shape.head_dim for heads in (shape.heads, shape.kv_heads, shape.kv_heads)]
    for index, layer in enumerate(model.layers):
        q, k, v = torch.split(layer.qkv_HC, sizes)
        gate, up = layer.gate_up_FC.chunk(2)
        parts = {
            "input_layernorm": layer.attention_norm_C,
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": layer.output_CH,
            "post_attention_layernorm": layer.mlp_norm_C,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down_CF,
        }
        tensors |= {f"model.layers.{index}.{name}.weight": part.contiguous() for name, part in parts.items()}
    return tensors


def write_folder(folder: Path, shape: LlamaShape, dtype: torch.dtype = torch.float32, shards: int = 1) -> Llama:
    model = random_llama(shape, CPU, dtype, seed=4)
    (folder / "config.json").write_text(json.dumps(config_of(shape)))
    tensors = tensors_of(model)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return model
    names: list[str] = sorted(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[shard::shards]}, folder / file)
        weight_map |= dict.fromkeys(names[shard::shards], file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return model


def logits(model: Llama) -> torch.Tensor:
    runner, rows = ModelRunner(model, 4, 16, choose_ops(CPU)), []
    runner.probe = lambda index, row: rows.append(row)
    runner.step([Row(list(range(1, 40)), 0, [2, 0, 3], GREEDY)])
    return rows[0]


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
@pytest.mark.parametrize("shards", (1, 3))
@pytest.mark.parametrize("shape", (TINY, UNTIED), ids=("tied", "untied"))
def test_a_folder_loads_as_it_was_saved(tmp_path: Path, shape: LlamaShape, shards: int, dtype: torch.dtype) -> None:
    saved = write_folder(tmp_path, shape, dtype, shards)
    assert read_shape(tmp_path) == shape
    loaded = load_folder(tmp_path, CPU, torch.float32)
    expected = {name: tensor.float() for name, tensor in tensors_of(saved).items()}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors_of(loaded).items())
    assert logits(loaded).isfinite().all()


def test_the_config_of_transformers_5_is_read(tmp_path: Path) -> None:
    config = config_of(TINY)
    del config["rope_theta"], config["rope_scaling"]
    config["rope_parameters"] = {"rope_theta": 777.0, "rope_type": "default"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_shape(tmp_path) == replace(TINY, rope_theta=777.0)


@pytest.mark.parametrize(
    ("config", "expected"),
    (
        ({"model_type": "mistral", "sliding_window": 4096}, {"window": 4096}),
        ({"model_type": "mistral", "sliding_window": None}, {"window": 0}),
        ({"model_type": "mistral"}, {"window": 4096}),
        ({"model_type": "llama", "sliding_window": 4096}, {"window": 0}),
        ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 32768}, {"qkv_bias": True}),
        ({"model_type": "qwen3", "layer_types": ["full_attention"] * 2}, {"qk_norm": True, "head_dim": 128}),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_scaling": LinearRope(2.0)}),
        ({"rope_scaling": LLAMA3}, {"rope_scaling": Llama3Rope(8.0, 1.0, 4.0, 2048)}),
        (
            {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}},
            {"rope_scaling": YarnRope(4.0, 1000), "max_context": 4000},
        ),
    ),
)
def test_what_the_families_add_is_read(tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of(TINY) | config))
    assert read_shape(tmp_path) == replace(TINY, **expected)


def message(folder: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        load_folder(folder, CPU, torch.float32)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    (
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported: llama, mistral, qwen2, qwen3"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling 'llama3' has no low_freq_factor"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling 'linear' has no factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor of the RoPE scaling must be a positive number, not 0"),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "factor of the RoPE scaling must be a positive number, not '2'"),
        ({"rope_scaling": "linear"}, "unsupported operand"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            "rope_scaling 'dynamic' is not supported; supported: linear, llama3, yarn",
        ),
        (
            {"rope_parameters": {"rope_type": "longrope"}},
            "rope_scaling 'longrope' is not supported; supported: linear, llama3, yarn",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0}},
            "mscale of rope_scaling 'yarn' is not supported; supported: attention_factor, beta_fast",
        ),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor (1.0) must exceed low_freq_factor (1.0)"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is not supported; supported: 1.0"),
        ({"rope_theta": 1.0}, "rope_theta must be above 1, not 1.0"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is not supported"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"]}, "layer_types 'sliding_attention' is not supported"),
        ({"model_type": "mistral", "sliding_window": -1}, "window must be a whole number of tokens, or 0 for no window, not -1"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; supported: 'silu'"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
        ({"num_key_value_heads": 3}, "heads (4) must be a multiple of kv_heads (3)"),
        ({"hidden_size": "64"}, "unsupported operand"),
        ({"num_attention_heads": 0}, "by zero"),
        ({"vocab_size": 0}, "vocab must be a whole number of at least 1, not 0"),
        ({"vocab_size": None}, "vocab must be a whole number of at least 1, not None"),
    ),
)
def test_a_config_that_cannot_run_is_refused(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    write_folder(tmp_path, TINY)
    (tmp_path / "config.json").write_text(json.dumps(config_of(TINY) | change))
    assert message(tmp_path).startswith(f"{tmp_path / 'config.json'}: ") and expected in message(tmp_path)


def test_a_missing_or_broken_config_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert message(tmp_path) == f"{path}: cannot be read (No such file or directory)"
    path.write_text("{")
    assert message(tmp_path).startswith(f"{path}: is not JSON (")
    path.write_text("[]")
    assert message(tmp_path) == f"{path}: holds no JSON object"
    path.write_text('{"model_type": "llama"}')
    assert message(tmp_path) == f"{path}: has no 'num_attention_heads'"


def test_missing_and_truncated_weights_are_named(tmp_path: Path) -> None:
    write_folder(tmp_path, TINY)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for end in (0, 4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:end])
        assert message(tmp_path).startswith(f"{path}: is not a readable safetensors file (")
    path.unlink()
    assert message(tmp_path) == f"{tmp_path}: has neither model.safetensors nor model.safetensors.index.json"


def test_a_shard_that_is_missing_or_wrongly_listed_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, TINY, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    name, first, second = "model.norm.weight", *sorted(set(weight_map.values()))
    wrong = second if weight_map[name] == first else first
    index.write_text(json.dumps({"weight_map": weight_map | {name: wrong}}))
    assert message(tmp_path).startswith(f"{tmp_path / wrong}: tensor {name} cannot be read (")
    (tmp_path / second).unlink()
    assert message(tmp_path).startswith(f"{tmp_path / second}: is not a readable safetensors file (")
    index.write_text("{}")
    assert message(tmp_path) == f"{index}: has no weight_map"


def test_a_tensor_that_is_missing_misshapen_or_too_many_is_named(tmp_path: Path) -> None:
    model = write_folder(tmp_path, TINY)
    path, name = tmp_path / "model.safetensors", "model.layers.1.mlp.down_proj.weight"
    tensors = tensors_of(model)
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path)
    assert message(tmp_path) == f"{tmp_path}: has no tensor {name}"
    save_file(tensors | {name: torch.zeros(64, 127)}, path)
    assert message(tmp_path) == f"{path}: tensor {name} has shape [64, 127], expected [64, 128]"
    save_file(tensors | {name: torch.zeros(64, 128, dtype=torch.int8)}, path)
    assert message(tmp_path) == f"{path}: tensor {name} is torch.int8; supported: float32, float16, bfloat16"
    save_file(tensors | {"model.layers.0.self_attn.q_norm.weight": torch.zeros(16)}, path)
    assert message(tmp_path).endswith("model.layers.0.self_attn.q_norm.weight is not known to this architecture")


def test_what_old_checkpoints_save_on_top_is_ignored(tmp_path: Path) -> None:
    tensors = tensors_of(write_folder(tmp_path, TINY))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8), "lm_head.weight": torch.zeros(512, 64)}
    save_file(tensors | extra, tmp_path / "model.safetensors")
    assert load_folder(tmp_path, CPU, torch.float32).shape == TINY


def test_a_path_that_is_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="nowhere: does not exist"):
        read_shape(tmp_path / "nowhere")
