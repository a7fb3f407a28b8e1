"""Renders chat templates in a process of its own, which may end at any time: templates are programs from strangers.

Run as a script, with a line of JSON for each conversation in, and one for each text or refusal out. The environment is that of
transformers' apply_chat_template. Past its processor time the kernel ends the process, whatever it is in the middle of.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

ALWAYS = {"tools": None, "documents": None, "add_generation_prompt": True}


class Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training: here its content is all that counts."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def environment(now: datetime) -> ImmutableSandboxedEnvironment:
    """What templates find beside the conversation."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = _tojson  # jinja2's own escapes HTML
    made.globals |= {"raise_exception": _refuse, "strftime_now": now.strftime}
    return made


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(reason: str) -> None:
    raise TemplateError(reason)


def _answer(task: Callable[[], str], characters: int) -> dict[str, str]:
    """The text, or one line of why there is none."""
    try:
        text = task()
    except MemoryError:
        return {"refusal": "it needs too much memory"}
    except RecursionError:
        return {"refusal": "it calls itself without end"}
    except TemplateError as error:
        return {"refusal": _line(str(error)) or type(error).__name__}
    except Exception as error:  # a template can raise anything
        return {"refusal": _line(f"{type(error).__name__}: {error}")}
    return {"text": text} if len(text) <= characters else {"refusal": f"it writes more than {characters} characters"}


def _line(text: str) -> str:
    return " ".join(text[:500].split())


def main() -> None:
    """Answer until there is no more input."""
    first = json.loads(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_AS, (first["memory"], resource.getrlimit(resource.RLIMIT_AS)[1]))
    made = environment(datetime.fromisoformat(first["now"]))
    template = cache(lambda: made.from_string(first["source"]))  # compiled under the limits, too
    for line in sys.stdin:
        values = first["special"] | ALWAYS | {"messages": json.loads(line)}
        render = partial(lambda values: template().render(values), values)
        signal.setitimer(signal.ITIMER_PROF, first["seconds"])
        answer = _answer(render, first["characters"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
