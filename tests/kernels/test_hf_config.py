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
        (  # the older key wins, as it does in transformers 5.24; and so does the context that stands beside it
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 5.0}},
            {"rope_scaling": LinearRope(2.0)},
        ),
        (
            {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 64}, "original_max_position_embeddings": 32},
            {"rope_scaling": Llama3Rope(8.0, 1.0, 4.0, 32)},
        ),
        ({"rope_theta": 7.0, "rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}, {"rope_theta": 9.0}),
        ({"num_key_value_heads": None}, {"kv_heads": 4}),
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
        ({"rope_scaling": "linear"}, "rope_scaling must be one object for all layers, not 'linear'"),
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
        ({"rope_theta": 1.0}, "rope_theta must be a finite number above 1, not 1.0"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "use_sliding_window is not supported"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"]}, "layer_types ['sliding_attention'] is not supported"),
        ({"model_type": "mistral", "sliding_window": -1}, "sliding_window must be a whole number of at least 1, not -1"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; supported: 'silu'"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
        ({"num_key_value_heads": 3}, "heads (4) must be a multiple of kv_heads (3)"),
        ({"hidden_size": "64"}, "hidden_size must be a whole number of at least 1, not '64'"),
        ({"num_attention_heads": 0}, "num_attention_heads must be a whole number of at least 1, not 0"),
        ({"vocab_size": 0}, "vocab_size must be a whole number of at least 1, not 0"),
        ({"vocab_size": None}, "vocab_size must be a whole number of at least 1, not None"),
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


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in CONFIG.items() if key not in keys}


TRANSFORMERS_REFUSES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number of at least 1, not True"),
    ({"num_hidden_layers": 2.0}, "num_hidden_layers must be a whole number of at least 1, not 2.0"),
    ({"num_key_value_heads": 0}, "num_key_value_heads must be a whole number of at least 1, not 0"),
    ({"head_dim": 0}, "head_dim must be a whole number of at least 1, not 0"),
    ({"head_dim": "16"}, "head_dim must be a whole number of at least 1, not '16'"),
    ({"num_attention_heads": 5}, "hidden_size (64) must be a multiple of num_attention_heads (5)"),
    ({"num_attention_heads": 5, "head_dim": 16}, "hidden_size (64) must be a multiple of num_attention_heads (5)"),
    ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number above 0, not '1e-5'"),
    ({"rope_theta": "10000"}, "rope_theta must be a number above 0, not '10000'"),
    ({"rope_theta": None}, "rope_theta must be a number above 0, not None"),
    ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be true or false, not 'false'"),
    ({"tie_word_embeddings": None}, "tie_word_embeddings must be true or false, not None"),
    ({"attention_bias": 0}, "attention_bias must be true or false, not 0"),
    ({"sliding_window": 0}, "sliding_window must be a whole number of at least 1, not 0"),
    ({"quantization_config": {}}, "quantization_config is not supported"),
    ({"text_config": {"hidden_size": 64}}, "text_config is not supported"),
    ({"layer_types": ["full_attention"]}, "layer_types ['full_attention'] is not supported"),
    ({"model_type": "mistral", "num_key_value_heads": None}, "num_key_value_heads must be a whole number"),
    ({"model_type": "qwen3", "head_dim": None}, "head_dim must be a whole number of at least 1, not None"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": None}}, "has no original_max_"),
)
TRANSFORMERS_WARNS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"rms_norm_eps": -1.0}, "rms_norm_eps must be a number above 0, not -1.0"),  # computes NaN
    ({"rope_theta": 0}, "rope_theta must be a number above 0, not 0"),  # computes NaN
    ({"max_position_embeddings": 0}, "max_position_embeddings must be a whole number of at least 1, not 0"),
    ({"max_position_embeddings": 10**12}, "max_context must be at most 16777216, not 1000000000000: positions are fp32"),
    ({"rope_theta": 10**400}, "int too large to convert to float"),
    ({"model_type": "mistral", "layer_types": ["full_attention"] * 2}, "is not supported"),  # overrules sliding_window
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not supported; supported: 1.0"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "rope_parameters must be one object for all layers"),
    ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_scaling ['yarn'] is not supported"),
)


@pytest.mark.parametrize(("change", "expected"), TRANSFORMERS_REFUSES + TRANSFORMERS_WARNS)
def test_odd_values_are_refused_by_the_name_of_their_key(tmp_path: Path, change: dict[str, Any], expected: str) -> None:
    """Transformers 5.24 refuses the first group, and computes something else or nothing useful with the second."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | change))
    assert message(tmp_path).startswith(f"{tmp_path / 'config.json'}: ") and expected in message(tmp_path)


def test_a_default_that_transformers_has_of_its_own_is_not_guessed(tmp_path: Path) -> None:
    """Without the key it takes 8 (Mistral) or 32 (Qwen) heads of key and value, and for Llama those of query."""
    for family in ("mistral", "qwen2", "qwen3"):
        (tmp_path / "config.json").write_text(json.dumps(without("num_key_value_heads") | {"model_type": family}))
        assert message(tmp_path).endswith("config.json: has no 'num_key_value_heads'")
    (tmp_path / "config.json").write_text(json.dumps(without("num_key_value_heads")))
    assert read_shape(tmp_path) == replace(TINY, kv_heads=4)


def test_json_without_end_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 200_000)
    assert "is not JSON (" in message(tmp_path)
