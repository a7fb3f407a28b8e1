"""The tokenizer of a Hugging Face folder, as transformers puts it together from up to four files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from slotlab_kernels.hf_config import read_json
from slotlab_kernels.json_values import flag
from slotlab_kernels.shape import ModelFileError

SETTINGS, SPECIAL = "tokenizer_config.json", "special_tokens_map.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def folder_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """What tokenizer.json describes, without what it was trained with (truncation, padding), and with the tokens that the other
    files add. ModelFileError if a file is missing or broken."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(f"{path}: does not exist")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no narrower class
        raise ModelFileError(f"{path}: is not a tokenizer ({error})") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        tokenizer.encode_special_tokens = flag(_settings(folder), "split_special_tokens")
    except ValueError as error:
        raise ModelFileError(f"{folder / SETTINGS}: {error}") from None
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_tokens([token for token in _added(folder) if token.content not in known])
    return tokenizer


def special_tokens(folder: Path) -> dict[str, str]:
    """The text of bos_token, eos_token and the like, by their names."""
    return {name: token_text(path, name, token) for name, (path, token) in _special(folder).items() if name in _NAMED}


def _special(folder: Path) -> dict[str, tuple[Path, Any]]:
    """The special tokens that the files name, and where; an older file counts where the newer does not list added tokens."""
    settings, path = _settings(folder), folder / SPECIAL
    named = {name: (folder / SETTINGS, token) for name, token in settings.items() if name.endswith("_token")}
    if path.is_file() and "added_tokens_decoder" not in settings:
        named |= {name: (path, token) for name, token in read_json(path).items() if name.endswith("_token")}
    own = {name: place for name, place in named.items() if name not in _NAMED and isinstance(place[1], str | dict)}
    return {name: named[name] for name in _NAMED if name in named and named[name][1] is not None} | own


def _added(folder: Path) -> Iterator[AddedToken]:
    """All tokens that the files add, in transformers' order: by id, then the special ones."""
    settings, older, path = _settings(folder), folder / "added_tokens.json", folder / SETTINGS
    decoder = settings.get("added_tokens_decoder")
    if decoder is not None:
        if not isinstance(decoder, dict) or not all(id.isdecimal() for id in decoder):
            raise ModelFileError(f"{path}: added_tokens_decoder is no object of token ids")
        yield from (_token(path, "added_tokens_decoder", decoder[id]) for id in sorted(decoder, key=int))
    elif older.is_file():
        ids = read_json(older)
        yield from (_token(older, text, text) for text in sorted(ids, key=lambda text: str(ids[text]).zfill(12)))
    yield from (_token(where, name, token) for name, (where, token) in _special(folder).items())
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    if not isinstance(extra, dict | list):
        raise ModelFileError(f"{path}: extra_special_tokens is {extra!r}, not a list of tokens")
    for token in extra.values() if isinstance(extra, dict) else extra:
        yield _token(path, "extra_special_tokens", token)


def _token(path: Path, name: str, token: Any) -> AddedToken:
    text, options = token_text(path, name, token), token if isinstance(token, dict) else {}
    kept = {key: value for key, value in options.items() if key in ("lstrip", "rstrip", "normalized", "single_word")}
    try:
        return AddedToken(text, special=options.get("special", True), **kept)
    except TypeError as error:
        raise ModelFileError(f"{path}: {name} is {token!r} ({error})") from None


def token_text(path: Path, name: str, token: Any) -> str:
    """A token is a text, or an object around it."""
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise ModelFileError(f"{path}: {name} is {token!r}, not a token")
    return text


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS
    return read_json(path) if path.is_file() else {}
