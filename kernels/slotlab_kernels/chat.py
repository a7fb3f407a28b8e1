"""Chat templates: how a model wants a conversation written down. Jinja, as in the files of a folder and in GGUF files."""

import json
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slotlab_kernels.folder_tokenizer import SETTINGS, special_tokens
from slotlab_kernels.gguf_header import GGUFHeader
from slotlab_kernels.hf_config import read_json
from slotlab_kernels.shape import ModelFileError

WORKER = Path(__file__).with_name("chat_worker.py")
LIMITS = {"seconds": 10.0, "memory": 1 << 30, "characters": 1 << 24}
"""Of processor time and of text for one conversation, of bytes for the process. Real templates need a thousandth."""


class ChatTemplate:
    """A template from the file `origin`; `special` are the names that it may use, such as `bos_token`."""

    def __init__(self, source: str, origin: Path, special: Mapping[str, str]) -> None:
        self._source, self._origin, self._special = source, origin, special
        self._worker: subprocess.Popen[str] | None = None

    def render(self, messages: Sequence[tuple[str, str]], now: datetime) -> str:
        """The conversation, (role, words) each, up to where the assistant speaks; `now` is what the first one sees as the time.

        ModelFileError if the template refuses it, fails, or goes beyond LIMITS.
        """
        worker = self._worker = self._worker or self._start(now)
        answer: dict[str, str]
        try:
            _send(worker, [{"role": role, "content": words} for role, words in messages])
            answer = json.loads(_line(worker))
        except (OSError, ValueError):  # it has ended
            self._worker, code = None, worker.wait()
            long = f"it needs more than {LIMITS['seconds']:g} s of processor time"
            answer = {"refusal": long if code == -signal.SIGPROF else f"its process ended with {code}"}
        if "refusal" in answer:
            raise ModelFileError(f"{self._origin}: its chat template refuses the messages ({answer['refusal']})")
        return answer["text"]

    def _start(self, now: datetime) -> "subprocess.Popen[str]":
        worker = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is for us
        )
        weakref.finalize(self, _stop, worker)
        _send(worker, {"source": self._source, "special": dict(self._special), "now": now.isoformat(), **LIMITS})
        return worker


def _send(worker: "subprocess.Popen[str]", content: Any) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(content) + "\n")
    worker.stdin.flush()


def _line(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    return worker.stdout.readline()


def _stop(worker: "subprocess.Popen[str]") -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except OSError:  # words that it never read
            continue


def folder_template(folder: Path) -> ChatTemplate | None:
    """That of a Hugging Face folder: of its .jinja files, else of tokenizer_config.json, the default; None if there is none."""
    config, own = folder / SETTINGS, folder / "chat_template.jinja"
    named = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    named |= {"default": own} if own.is_file() else {}
    if named:
        return ChatTemplate(_read(_default(folder, named)), own, special_tokens(folder))
    source = read_json(config).get("chat_template") if config.is_file() else None
    if source is None:
        return None
    if isinstance(source, list):  # several by name
        if not all(isinstance(entry, dict) and {"name", "template"} <= entry.keys() for entry in source):
            raise ModelFileError(f"{config}: chat_template is no text, nor a list of names and templates")
        source = _default(config, {str(entry["name"]): entry["template"] for entry in source})
    if not isinstance(source, str):
        raise ModelFileError(f"{config}: chat_template is no text, nor a list of names and templates")
    return ChatTemplate(source, config, special_tokens(folder))


def gguf_template(header: GGUFHeader) -> ChatTemplate | None:
    """That in the metadata of a GGUF file; None if it has none."""
    if "tokenizer.chat_template" not in header.fields:
        return None
    tokens, special = header.get("tokenizer.ggml.tokens", list), dict[str, str]()
    for name in ("bos", "eos"):
        if (field := f"tokenizer.ggml.{name}_token_id") in header.fields:
            id = header.get(field, int)
            if not 0 <= id < len(tokens):
                raise ModelFileError(f"{header.path}: {field} is {id}, and there are {len(tokens)} tokens")
            special[f"{name}_token"] = str(tokens[id])
    return ChatTemplate(header.get("tokenizer.chat_template", str), header.path, special)


def _default(origin: Path, named: Mapping[str, Any]) -> Any:
    if "default" not in named:
        raise ModelFileError(f"{origin}: of its chat templates, {', '.join(sorted(named))}, none is called default")
    return named["default"]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be read ({error})") from None
