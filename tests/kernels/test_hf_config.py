"""What a config.json means: as transformers reads it, or refused by the name of its key."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slotlab_kernels.checkpoint import read_shape
from slotlab_kernels.rope import LinearRope, Llama3Rope, YarnRope
from slotlab_kernels.shape import TINY, ModelFileError

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "vocab_size": TINY.vocab,
    "hidden_size": TINY.hidden,
    "num_hidden_layers": TINY.layers,
    "num_attention_heads": TINY.heads,
    "num_key_value_heads": TINY.kv_heads,
    "intermediate_size": TINY.intermediate,
    "rms_norm_eps": TINY.norm_eps,
    "rope_theta": TINY.rope_theta,
    "max_position_embeddings": TINY.max_context,
    "tie_word_embeddings": TINY.tied,
    "rope_scaling": None,
    "eos_token_id": 2,
}


def message(folder: Path) -> str:
    with pytest.raises(ModelFileError) as error:
        read_shape(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_config_of_transformers_5_is_read(tmp_path: Path) -> None:
    config = dict(CONFIG)
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
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | config))
    assert read_shape(tmp_path) == replace(TINY, **expected)


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
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
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
