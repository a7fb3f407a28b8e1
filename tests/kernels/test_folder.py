import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slotlab_kernels.batch import Row
from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.folder import load_folder
from slotlab_kernels.llama import Llama
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.rope import rope_periods
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import TINY, LlamaShape, ModelFileError
from slotlab_kernels.weights import random_llama

CPU = torch.device("cpu")
UNTIED = replace(TINY, tied=False)


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


def message(folder: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        load_folder(folder, CPU, torch.float32)
    assert "\n" not in str(error.value)
    return str(error.value)


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
    for listed, wrong in ((name, second if weight_map[name] == first else first), ("model.extra.weight", first)):
        index.write_text(json.dumps({"weight_map": weight_map | {listed: wrong}}))
        assert message(tmp_path) == f"{index}: tensor {listed} is not in {wrong}, which it names"
    (tmp_path / second).unlink()
    assert message(tmp_path).startswith(f"{tmp_path / second}: is not a readable safetensors file (")
    for content in ({}, {"weight_map": {name: 1}}, {"weight_map": [name]}):
        index.write_text(json.dumps(content))
        assert message(tmp_path) == f"{index}: has no weight_map of tensors to files"


def test_every_tensor_of_a_shard_counts_whether_the_index_lists_it_or_not(tmp_path: Path) -> None:
    """Transformers 5.24 loads one that is not listed, warns of an unknown one, and of two takes the last: we refuse to guess."""
    model = write_folder(tmp_path, TINY, shards=2)
    index, name = tmp_path / "model.safetensors.index.json", "model.layers.0.mlp.up_proj.weight"
    weight_map = json.loads(index.read_text())["weight_map"]
    first, second = sorted(set(weight_map.values()))
    index.write_text(json.dumps({"weight_map": {key: file for key, file in weight_map.items() if key != name}}))
    load_folder(tmp_path, CPU, torch.float32)
    tensors = tensors_of(model)
    held = {file: {key: tensors[key] for key in tensors if weight_map[key] == file} for file in (first, second)}
    save_file(held[first] | {"model.extra.weight": torch.zeros(2)}, tmp_path / first)
    assert message(tmp_path) == f"{tmp_path / first}: tensor model.extra.weight is not known to this architecture"
    save_file(held[first] | {key: held[second][key] for key in list(held[second])[:1]}, tmp_path / first)
    assert message(tmp_path) == f"{tmp_path / second}: tensor {next(iter(held[second]))} is also in {first}"


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


@pytest.mark.parametrize("tie", (True, False))
def test_a_head_of_its_own_is_used_even_where_the_config_ties_it(tmp_path: Path, tie: bool) -> None:
    """So does transformers 5.24: a config that ties a head which differs is overruled, one that is equal or missing is tied."""
    embedding = write_folder(tmp_path, UNTIED).embedding_VC
    (tmp_path / "config.json").write_text(json.dumps(config_of(replace(UNTIED, tied=tie))))
    loaded = load_folder(tmp_path, CPU, torch.float32)
    assert loaded.shape == UNTIED and not torch.equal(loaded.head_VC, loaded.embedding_VC)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"lm_head.weight": embedding}, path)
    assert load_folder(tmp_path, CPU, torch.float32).shape == replace(UNTIED, tied=tie)
    del tensors["lm_head.weight"]
    save_file(tensors, path)
    if tie:
        assert load_folder(tmp_path, CPU, torch.float32).shape == TINY
    else:
        assert message(tmp_path) == f"{tmp_path}: has no tensor lm_head.weight"


def test_the_rope_table_of_old_checkpoints_must_be_that_of_the_config(tmp_path: Path) -> None:
    tensors, name = tensors_of(write_folder(tmp_path, TINY)), "model.layers.0.self_attn.rotary_emb.inv_freq"
    table = 1 / torch.tensor(rope_periods(TINY.rope_theta, TINY.head_dim, None))
    for saved in (table, table.half(), table.bfloat16()):
        save_file(tensors | {name: saved}, tmp_path / "model.safetensors")
        assert load_folder(tmp_path, CPU, torch.float32).shape == TINY
    for saved in (table / 2, table[:4]):
        save_file(tensors | {name: saved.contiguous()}, tmp_path / "model.safetensors")
        assert message(tmp_path).endswith(f"tensor {name} is not known to this architecture")


@pytest.mark.parametrize(
    ("name", "size"),
    (
        ("model.layers.0.self_attn.q_proj.bias", (64,)),
        ("model.layers.0.mlp.up_proj.weight_scale", (1,)),
        ("model.layers.2.input_layernorm.weight", (64,)),
        ("model.norm.bias", (64,)),
        ("score.weight", (2, 64)),
    ),
)
def test_a_tensor_that_the_config_has_no_place_for_is_named(tmp_path: Path, name: str, size: tuple[int, ...]) -> None:
    """Transformers 5.24 lists each of them as unexpected, and computes without it."""
    path = tmp_path / "model.safetensors"
    save_file(tensors_of(write_folder(tmp_path, TINY)) | {name: torch.zeros(size)}, path)
    assert message(tmp_path) == f"{path}: tensor {name} is not known to this architecture"


def test_a_path_that_is_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="nowhere: does not exist"):
        read_shape(tmp_path / "nowhere")
