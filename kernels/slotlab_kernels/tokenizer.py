"""Text to token ids and back, from a Hugging Face folder or from the metadata of a GGUF file."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import tokenizers

from slotlab_kernels.chat import ChatTemplate, folder_template, gguf_template
from slotlab_kernels.ends import folder_ends, gguf_ends
from slotlab_kernels.folder_tokenizer import folder_tokenizer
from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.gguf_parts import read_gguf
from slotlab_kernels.gguf_tokenizer import gguf_bos, gguf_last, gguf_tokenizer
from slotlab_kernels.shape import ModelFileError


class Tokenizer:
    """A tokenizer and the ids that end an answer, `end_ids`; none where the files name none."""

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        end_ids: frozenset[int],
        bos_id: int | None = None,
        last_id: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._first, self._last = ([] if id is None else [id] for id in (bos_id, last_id))
        self._template = template
        self.end_ids = end_ids

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, with the first and the last token that the model wants around it, if any."""
        return self._first + self._tokenizer.encode(text).ids + self._last

    def encode_chat(self, messages: Sequence[tuple[str, str]], now: datetime) -> list[int]:
        """The ids of a conversation, (role, words) each, as the model's chat template writes it at the time `now`."""
        if self._template is None:
            raise ModelFileError("the model has no chat template: its prompts must be plain words")
        return self._tokenizer.encode(self._template.render(messages, now), add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids, special tokens included; bytes that are no UTF-8 yet become the replacement character."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of the model at `path`; ModelFileError if its files are missing, broken or of another kind."""
    path = Path(path)
    return _from_folder(path) if path.is_dir() else _from_gguf(read_gguf(path))


def _from_folder(folder: Path) -> Tokenizer:
    tokenizer = folder_tokenizer(folder)
    return Tokenizer(tokenizer, folder_ends(folder, tokenizer), template=folder_template(folder))


def _from_gguf(header: GGUFHeader) -> Tokenizer:
    return Tokenizer(gguf_tokenizer(header), gguf_ends(header), gguf_bos(header), gguf_last(header), gguf_template(header))
