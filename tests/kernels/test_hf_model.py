"""Models of transformers with our attention inside: as the model alone, whatever the schedule, or refused by name."""

import json
import sys
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from slotlab import UserError
from slotlab_kernels import hf_load
from slotlab_kernels.batch import Row
from slotlab_kernels.hf_load import hf_max_context, load_hf
from slotlab_kernels.hf_model import interface
from slotlab_kernels.invariance import batch_dependence
from slotlab_kernels.ops import choose_ops
from slotlab_kernels.runner import ModelRunner
from slotlab_kernels.sampling import GREEDY
from slotlab_kernels.shape import ModelFileError
from slotlab_plugins.models.transformers import Transformers

CPU = torch.device("cpu")
parity, products = (
    SimpleNamespace(**run_path(str(Path(__file__).parent / f"{name}.py"))) for name in ("make_parity", "products")
)
SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write(folder: Path, config: str, **settings: Any) -> Any:
    """A model of a config class of transformers, with random weights large enough for attention to matter."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, config)(**SIZES | settings), attn_implementation="eager"
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 5.0 if weight.ndim > 1 else 1.0
    model.save_pretrained(folder)
    return model.eval()


def make_runner(folder: Path, dtype: torch.dtype = torch.float32) -> ModelRunner:
    runner = ModelRunner(load_hf(folder, CPU, dtype), 24, 8, choose_ops(CPU))  # type: ignore[arg-type]
    runner.cache.all.fill_(torch.nan)
    return runner


def logits(runner: ModelRunner, rows: list[Row]) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    runner.probe = lambda index, logits: seen.append(logits)
    runner.step(rows)
    return torch.stack(seen) if seen else torch.empty(0)


@pytest.mark.parametrize("family", parity.FAMILIES)
def test_our_own_families_are_computed_alike(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    parity.write_model(tmp_path, family)
    runner, start, got = make_runner(tmp_path), 0, []
    for at in parity.ROWS:
        got.append(logits(runner, [Row(parity.IDS[start : at + 1], start, [5, 3, 0, 7, 1, 2], GREEDY)]))
        start = at + 1
    torch.testing.assert_close(torch.cat(got), torch.from_numpy(np.load(parity.EXPECTED)[family]), atol=5e-5, rtol=0)


@pytest.mark.parametrize(
    ("config", "settings"),
    (
        ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7}),
        ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
        ("Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16}),
        ("Olmo2Config", {}),
    ),
)
def test_other_models_give_the_logits_of_the_model_alone(config: str, settings: dict[str, Any], tmp_path: Path) -> None:
    own = write(tmp_path, config, **settings)
    with torch.inference_mode():
        expected = own(torch.tensor([parity.IDS]), use_cache=False).logits[0, [19, -1]]
    runner, ids = make_runner(tmp_path), parity.IDS
    first = logits(runner, [Row(ids[:20], 0, [4, 9, 2], GREEDY)])
    last = logits(runner, [Row(ids[20:], 20, [4, 9, 2, 0, 7, 5], GREEDY), Row(ids[:3], 0, [1], None)])
    torch.testing.assert_close(torch.cat((first, last)), expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_library_that_rounds_by_the_number_of_rows_changes_nothing_and_one_that_does_by_place_is_found(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "Qwen3Config", head_dim=24)
    runner = make_runner(tmp_path, dtype)
    monkeypatch.setattr(F, "linear", products.by_rows)
    assert batch_dependence(runner) is None
    monkeypatch.setattr(F, "linear", products.by_place)
    assert batch_dependence(runner) is not None


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_logits_do_not_depend_on_the_batch_or_the_chunks(dtype: torch.dtype, tmp_path: Path) -> None:
    write(tmp_path, "Qwen3Config", head_dim=24)
    runner, lengths, blocks = make_runner(tmp_path, dtype), (5, 19, 45), ([3], [8, 1, 6], [2, 0, 9, 4, 12, 11])
    rows = [Row(parity.IDS[:n], 0, where, GREEDY) for n, where in zip(lengths, blocks, strict=True)]
    alone = torch.cat([logits(runner, [row]) for row in rows])
    assert torch.equal(logits(runner, rows), alone)
    chunks = [Row(parity.IDS[at : at + 7], at, blocks[2], GREEDY) for at in range(0, 42, 7)]
    for chunk in chunks:
        logits(runner, [chunk])
    assert torch.equal(logits(runner, [Row(parity.IDS[42:45], 42, blocks[2], GREEDY)])[0], alone[2])


@pytest.mark.parametrize(
    ("config", "settings", "expected"),
    (
        ("Gemma2Config", {"head_dim": 16}, "Gemma2ForCausalLM cannot be served: its attention wants softcap"),
        (
            "GptOssConfig",
            {"num_local_experts": 4, "head_dim": 16},
            "GptOssForCausalLM cannot be served: its attention wants s_aux",
        ),
        ("MambaConfig", {}, "mamba has layers of linear_attention; supported: full and sliding attention"),
        ("BloomConfig", {"n_layer": 2, "n_head": 4}, "BloomForCausalLM does not take its attention from transformers'"),
        ("BertConfig", {"is_decoder": False}, "BertLMHeadModel cannot be served: its attention is not the plain causal one"),
        (
            "LlamaConfig",
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "rope_scaling 'dynamic'",
        ),
    ),
)
def test_a_model_that_cannot_be_served_is_named(config: str, settings: dict[str, Any], expected: str, tmp_path: Path) -> None:
    write(tmp_path, config, **settings)
    with pytest.raises(ModelFileError) as error:
        load_hf(tmp_path, CPU, torch.float32)
    assert str(error.value).startswith(f"{tmp_path}: {expected}") and "\n" not in str(error.value)


def test_logits_that_differ_from_the_models_own_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "LlamaConfig")

    def sharper(*tensors: Any, **options: Any) -> Any:
        return interface(*tensors, **options | {"scaling": 1.0})

    monkeypatch.setattr(hf_load, "interface", sharper)
    with pytest.raises(ModelFileError, match="with our attention its logits differ from its own by"):
        load_hf(tmp_path, CPU, torch.float32)


def test_missing_and_truncated_weights_are_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    parity.write_model(tmp_path, "qwen3")
    path, name = tmp_path / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=f"{tmp_path}: transformers cannot load it ") as error:
        load_hf(tmp_path, CPU, torch.float32)
    assert "\n" not in str(error.value)
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=f"{tmp_path}: has no tensor {name}"):
        load_hf(tmp_path, CPU, torch.float32)


def test_a_tensor_that_the_model_has_no_place_for_is_named(tmp_path: Path) -> None:
    """Transformers warns, and computes without it."""
    pytest.importorskip("transformers")
    parity.write_model(tmp_path, "qwen3")
    path, name = tmp_path / "model.safetensors", "model.layers.1.mlp.up_proj.weight_scale"
    save_file(load_file(path) | {name: torch.ones(1)}, path, metadata={"format": "pt"})
    with pytest.raises(ModelFileError, match=f"{tmp_path}: tensor {name} is not known to Qwen3ForCausalLM"):
        load_hf(tmp_path, CPU, torch.float32)


def test_random_weights_and_limits_need_the_config_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(parity.TINY))
    one, two = (load_hf(tmp_path, CPU, torch.float32, dummy=True) for _ in range(2))
    assert torch.equal(one.model.lm_head.weight, two.model.lm_head.weight)
    assert hf_max_context(tmp_path) == Transformers(str(tmp_path)).max_context() == 64
    with pytest.raises(ModelFileError, match="transformers cannot load it"):
        load_hf(tmp_path, CPU, torch.float32)


def test_without_transformers_one_line_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError) as error:
        Transformers(str(tmp_path)).max_context()
    assert str(error.value) == "model=transformers: transformers is not installed: pip install 'transformers>=5'"


def test_a_path_is_needed() -> None:
    with pytest.raises(UserError, match="path"):
        Transformers()
