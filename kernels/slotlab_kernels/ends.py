"""The tokens that end an answer: a set, since instruct models end a turn and a text with different ones."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers

from slotlab_kernels.folder_tokenizer import SETTINGS, SPECIAL, token_text
from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.hf_config import CONFIG, read_json
from slotlab_kernels.shape import ModelFileError

_GGUF_ENDS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_END_TEXTS = {
    *("</s>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|im_end|>", "<|end|>", "<EOT>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
}
"""Converters do not name all of them, so llama.cpp knows some by their text: those of the architectures that we read."""


def folder_ends(folder: Path, tokenizer: tokenizers.Tokenizer) -> frozenset[int]:
    """All that config.json, generation_config.json and the tokenizer's files name; -1 stands for none of them."""
    ends = set[int]()
    config = read_json(folder / CONFIG)
    text_config = config.get("text_config")
    for part in (config, text_config if isinstance(text_config, dict) else {}):
        ends |= _ids(folder / CONFIG, part.get("eos_token_id"))
    path = folder / "generation_config.json"
    if path.is_file():
        ends |= _ids(path, read_json(path).get("eos_token_id"))
    for path in (folder / SETTINGS, folder / SPECIAL):
        if path.is_file():
            ends |= _named(path, tokenizer)
    return frozenset(ends)


def gguf_ends(header: GGUFHeader) -> frozenset[int]:
    """All that the metadata names, and those whose text says so."""
    fields = (f"tokenizer.ggml.{name}_token_id" for name in _GGUF_ENDS)
    ends = {header.get(field, int) for field in fields if field in header.fields}
    tokens: Iterable[Any] = header.get("tokenizer.ggml.tokens", list)
    return frozenset(ends | {id for id, token in enumerate(tokens) if token in _END_TEXTS})


def _ids(path: Path, value: Any) -> set[int]:
    ids = value if isinstance(value, list) else [] if value is None else [value]
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int):
            raise ModelFileError(f"{path}: eos_token_id is {value!r}, not a token id or a list of them")
    return set(ids) - {-1}


def _named(path: Path, tokenizer: tokenizers.Tokenizer) -> set[int]:
    token = read_json(path).get("eos_token")
    if token is None:
        return set()
    id = tokenizer.token_to_id(token_text(path, "eos_token", token))
    return set() if id is None else {id}
