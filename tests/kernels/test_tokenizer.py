from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from slotlab_kernels.shape import ModelFileError
from slotlab_kernels.tokenizer import load_tokenizer


def write_tokenizer(folder: Path, eos: object, with_bos: bool = False) -> None:
    vocab = {token: index for index, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "<s>", "</s>"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [("h", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if with_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocab["<s>"])])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": eos}))


def test_a_folder_gives_text_back_and_knows_its_end(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, eos=258)
    tokenizer = load_tokenizer(tmp_path)
    ids = tokenizer.encode("hello né</s>")
    assert ids[0] == 256 and ids[-1] == 258 and tokenizer.end_ids == {258}
    assert tokenizer.decode(ids) == "hello né</s>"


def test_a_prompt_starts_as_the_model_wants_it(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, eos=258, with_bos=True)
    assert load_tokenizer(tmp_path).encode("he") == [257, 256]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: does not exist$"):
        load_tokenizer(tmp_path)
    path.write_text("{}")
    with pytest.raises(ModelFileError, match=r"tokenizer\.json: is not a tokenizer"):
        load_tokenizer(tmp_path)


PLAIN = [256, 75, 75, 78, 220, 258, 87, 27, 77, 68, 86, 29, 220, 256]
ADDED = [256, 75, 75, 78, 220, 258, 87, 259, 220, 256]
NEW = {"content": "<new>", "special": True, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}


@pytest.mark.parametrize(
    ("files", "expected"),
    (
        ({}, PLAIN),
        ({"tokenizer_config": {"model_max_length": 2, "add_prefix_space": True, "do_lower_case": True}}, PLAIN),
        ({"tokenizer_config": {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>"}}, PLAIN),
        ({"tokenizer_config": {"split_special_tokens": True}}, [*PLAIN[:5], 27, 14, 82, 29, *PLAIN[6:]]),
        ({"tokenizer_config": {"added_tokens_decoder": {"259": NEW}}}, ADDED),
        ({"tokenizer_config": {"added_tokens_decoder": {"300": NEW}}}, ADDED),
        ({"added_tokens": {"<new>": 259}}, ADDED),
        ({"tokenizer_config": {"additional_special_tokens": ["<new>"]}}, ADDED),
        ({"tokenizer_config": {"extra_special_tokens": {"image_token": "<new>"}}}, ADDED),
        ({"tokenizer_config": {"image_token": "<new>"}}, ADDED),
        ({"tokenizer_config": {"pad_token": "<new>"}}, ADDED),
        ({"special_tokens_map": {"eos_token": {"content": "<new>"}}}, ADDED),
        ({"tokenizer_config": {"added_tokens_decoder": {}}, "special_tokens_map": {"eos_token": "<new>"}}, PLAIN),
    ),
)
def test_the_files_beside_it_say_of_a_tokenizer_what_they_say_in_transformers(
    tmp_path: Path, files: dict[str, Any], expected: list[int]
) -> None:
    """Those ids are what AutoTokenizer of transformers 5.24 gave for the same files."""
    write_tokenizer(tmp_path, eos=None)
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).encode("hello </s>x<new> he") == expected


def test_what_a_tokenizer_was_trained_with_does_not_govern_serving(tmp_path: Path) -> None:
    """A file that cuts at 3 tokens, or pads to 12, encodes as one that does not: so does transformers 5.24."""
    write_tokenizer(tmp_path, eos=None, with_bos=True)
    path = tmp_path / "tokenizer.json"
    plain = load_tokenizer(tmp_path).encode("hello </s>x he")
    saved = tokenizers.Tokenizer.from_file(str(path))
    saved.enable_truncation(3)
    saved.enable_padding(length=12, pad_id=258, pad_token="</s>")
    saved.save(str(path))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("hello </s>x he") == plain and len(plain) == 10
    assert tokenizer.encode("he") == [257, 256]


@pytest.mark.parametrize(
    ("settings", "expected"),
    (
        ({"split_special_tokens": 1}, "split_special_tokens must be true or false, not 1"),
        ({"added_tokens_decoder": ["<new>"]}, "added_tokens_decoder is no object of token ids"),
        ({"added_tokens_decoder": {"x": NEW}}, "added_tokens_decoder is no object of token ids"),
        ({"added_tokens_decoder": {"259": {"content": 1}}}, "added_tokens_decoder is {'content': 1}, not a token"),
        ({"added_tokens_decoder": {"259": NEW | {"lstrip": "x"}}}, "added_tokens_decoder is {'content': '<new>', "),
        ({"extra_special_tokens": 3}, "extra_special_tokens is 3, not a list of tokens"),
        ({"extra_special_tokens": [None]}, "extra_special_tokens is None, not a token"),
        ({"bos_token": False}, "bos_token is False, not a token"),
    ),
)
def test_settings_that_make_no_sense_are_named(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    write_tokenizer(tmp_path, eos=None)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(settings))
    with pytest.raises(ModelFileError) as error:
        load_tokenizer(tmp_path)
    assert str(error.value).startswith(f"{path}: {expected}")
