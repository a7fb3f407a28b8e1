"""Chat templates: how a model wants a conversation written down. Jinja, as in tokenizer_config.json and in GGUF files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from slotlab_kernels.folder_tokenizer import special_tokens
from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.hf_config import read_json
from slotlab_kernels.shape import ModelFileError


class ChatTemplate:
    """A template from the file `origin`; `special` are the names that it may use, such as `bos_token`."""

    def __init__(self, source: str, origin: Path, special: Mapping[str, str]) -> None:
        self._source, self._origin, self._special = source, origin, special

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """The conversation, (role, words) each, up to where the assistant speaks; ModelFileError if the template refuses it."""
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(reason: str) -> None:
            raise TemplateError(reason)

        said = [{"role": role, "content": words} for role, words in messages]
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            template = environment.from_string(self._source, {"raise_exception": refuse, **self._special})
            return template.render(messages=said, add_generation_prompt=True)
        except TemplateError as error:
            raise ModelFileError(f"{self._origin}: its chat template refuses the messages ({error})") from None


def folder_template(folder: Path) -> ChatTemplate | None:
    """That of a Hugging Face folder: chat_template.jinja, else in tokenizer_config.json; None if neither is there."""
    config, own = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    settings = read_json(config) if config.is_file() else {}
    source = own.read_text(encoding="utf-8") if own.is_file() else settings.get("chat_template")
    if isinstance(source, list):  # several by name
        source = next((entry["template"] for entry in source if entry.get("name") == "default"), None)
    if source is None:
        return None
    if not isinstance(source, str):
        raise ModelFileError(f"{config}: chat_template is no text")
    return ChatTemplate(source, own if own.is_file() else config, special_tokens(folder))


def gguf_template(header: GGUFHeader) -> ChatTemplate | None:
    """That in the metadata of a GGUF file; None if it has none."""
    if "tokenizer.chat_template" not in header.fields:
        return None
    tokens = header.get("tokenizer.ggml.tokens", list)
    ids = {name: header.fields.get(f"tokenizer.ggml.{name}_id") for name in ("bos_token", "eos_token")}
    special = {name: tokens[id] for name, id in ids.items() if id is not None}
    return ChatTemplate(header.get("tokenizer.chat_template", str), header.path, special)
