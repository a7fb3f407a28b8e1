"""Text to token ids and back, from a Hugging Face folder or from the metadata of a GGUF file."""

from collections.abc import Sequence
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from slotlab_kernels.chat import ChatTemplate, folder_template, gguf_template
from slotlab_kernels.gguf_header import GGUFHeader, read_gguf_header
from slotlab_kernels.hf_config import folder_eos
from slotlab_kernels.shape import ModelFileError

_CONTROL, _USER_DEFINED = 3, 4


class Tokenizer:
    """A tokenizer and the id that ends a generation, `eos_id`; None where the files name none."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        eos_id: int | None,
        bos_id: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._first = [] if bos_id is None else [bos_id]
        self._template = template
        self.eos_id = eos_id

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with the first token that the model wants before it, if any."""
        return self._first + self._tokenizer.encode(text).ids

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """The ids of a conversation, (role, words) each, as the model's chat template writes it, special tokens and all."""
        if self._template is None:
            raise ModelFileError("the model has no chat template: its prompts must be plain words")
        return self._tokenizer.encode(self._template.render(messages), add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included; bytes that are no UTF-8 yet become the replacement character."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of the model at `path`; ModelFileError if its files are missing, broken or of another kind."""
    path = Path(path)
    return _from_folder(path) if path.is_dir() else _from_gguf(read_gguf_header(path))


def _from_folder(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFileError(f"{path}: does not exist")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises no narrower class
        raise ModelFileError(f"{path}: is not a tokenizer ({error})") from None
    return Tokenizer(tokenizer, folder_eos(folder), template=folder_template(folder))


def _from_gguf(header: GGUFHeader) -> Tokenizer:
    """Byte-level BPE (Radford et al., 2019), the model that GGUF calls gpt2."""
    kind, split = header.get("tokenizer.ggml.model", str), header.get("tokenizer.ggml.pre", str)
    if kind != "gpt2" or split not in _SPLITS:
        allowed = ", ".join(f"gpt2/{name}" for name in _SPLITS)
        raise ModelFileError(f"{header.path}: tokenizer {kind}/{split} is not supported; supported: {allowed}")
    try:
        tokenizer = _byte_level_bpe(header, _SPLITS[split])
    except ModelFileError:
        raise
    except Exception as error:  # tokenizers raises no narrower class
        raise ModelFileError(f"{header.path}: the vocabulary and its merges do not fit ({error})") from None
    with_bos = header.get("tokenizer.ggml.add_bos_token", bool, False)
    bos = header.get("tokenizer.ggml.bos_token_id", int) if with_bos else None
    return Tokenizer(tokenizer, header.fields.get("tokenizer.ggml.eos_token_id"), bos, gguf_template(header))


def _byte_level_bpe(header: GGUFHeader, split: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    tokens, kinds = header.get("tokenizer.ggml.tokens", list), header.get("tokenizer.ggml.token_type", list)
    merges = [tuple(pair.split(" ", 1)) for pair in header.get("tokenizer.ggml.merges", list)]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    # matched as a whole, before the text is split
    for kind, add in ((_CONTROL, tokenizer.add_special_tokens), (_USER_DEFINED, tokenizer.add_tokens)):
        add([AddedToken(t, normalized=False) for t, k in zip(tokens, kinds, strict=True) if k == kind])
    return tokenizer


_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_SPLITS = {
    "gpt-2": _BYTES,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _BYTES]),
}
