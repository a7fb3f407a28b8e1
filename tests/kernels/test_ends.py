"""The tokens that end an answer are a set: the union of what all files of a model name, and each of them ends it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from tokenizers import models

from slotlab_kernels.ends import gguf_ends
from slotlab_kernels.gguf_header import read_gguf_header
from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer

TOKENS = ["<unk>", "a", "</s>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "b", "<end>"]


def write_folder(folder: Path, **files: Any) -> Path:
    tokenizer = tokenizers.Tokenizer(models.WordLevel({token: id for id, token in enumerate(TOKENS)}, unk_token="<unk>"))
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in ({"config": {}} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    (
        ({}, set()),
        ({"config": {"eos_token_id": None}}, set()),
        ({"config": {"eos_token_id": -1}}, set()),  # transformers 5.24: no token equals it
        ({"config": {"eos_token_id": 2}}, {2}),
        ({"config": {"eos_token_id": [2, 7]}}, {2, 7}),  # transformers 5.24: [2, 7]
        ({"config": {"text_config": {"eos_token_id": 7}}}, {7}),
        ({"config": {"eos_token_id": 2}, "generation_config": {"eos_token_id": [3, 4]}}, {2, 3, 4}),
        ({"config": {"eos_token_id": 2}, "generation_config": {"temperature": 0.6}}, {2}),
        ({"config": {"eos_token_id": 2}, "tokenizer_config": {"eos_token": "<|eot_id|>"}}, {2, 3}),
        ({"tokenizer_config": {"eos_token": {"__type": "AddedToken", "content": "<|im_end|>"}}}, {5}),
        ({"tokenizer_config": {"eos_token": "<new>"}}, {8}),  # transformers 5.24 adds it
        ({"tokenizer_config": {"eos_token": None}, "special_tokens_map": {"eos_token": {"content": "<end>"}}}, {7}),
    ),
)
def test_all_that_the_files_of_a_folder_name_end_an_answer(tmp_path: Path, files: Any, expected: set[int]) -> None:
    assert load_tokenizer(write_folder(tmp_path, **files)).end_ids == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    (
        ({"config": {"eos_token_id": "</s>"}}, "config.json: eos_token_id is '</s>', not a token id or a list of them"),
        ({"config": {"eos_token_id": [2, 7.0]}}, "config.json: eos_token_id is [2, 7.0], not a token id or a list of them"),
        (
            {"generation_config": {"eos_token_id": True}},
            "generation_config.json: eos_token_id is True, not a token id or a list of them",
        ),
        ({"tokenizer_config": {"eos_token": 2}}, "tokenizer_config.json: eos_token is 2, not a token"),
        ({"special_tokens_map": {"eos_token": ["</s>"]}}, "special_tokens_map.json: eos_token is ['</s>'], not a token"),
    ),
)
def test_an_end_that_is_no_token_is_named(tmp_path: Path, files: Any, expected: str) -> None:
    with pytest.raises(ModelFileError) as error:
        load_tokenizer(write_folder(tmp_path, **files))
    assert str(error.value) == f"{tmp_path}/{expected}"


def write_gguf(path: Path, tokens: list[str], **ends: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(tokens)
    for name, id in ends.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("tokens", "ends", "expected"),
    (
        (["a", "b", "c", "d"], {"eos": 0, "eot": 2, "eom": 3, "bos": 1}, {0, 2, 3}),
        (["a", "b", "c", "d"], {}, set()),
        (["a", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"], {"eos": 2}, {1, 2, 3}),
        (["<|endoftext|>", "<|im_start|>", "<|im_end|>"], {"eos": 2}, {0, 2}),
    ),
)
def test_a_gguf_names_its_ends_by_id_or_by_text(tmp_path: Path, tokens: list[str], ends: dict[str, int], expected: Any) -> None:
    """As llama.cpp: src/llama-vocab.cpp, "maintain a list of tokens that cause end-of-generation"."""
    path = write_gguf(tmp_path / "model.gguf", tokens, **ends)
    assert gguf_ends(read_gguf_header(path)) == expected
