"""`slotlab ui`: the MLflow server on loopback."""

from __future__ import annotations

from pathlib import Path

from slotlab.errors import UserError


def show_ui(words: list[str]) -> int:
    """`slotlab ui`: the MLflow server on loopback."""
    from slotlab.tracking import resolve_uri
    from slotlab.tracking.server import serve_ui

    options = {"--port": "5000", "--uri": ""}
    for name, value in zip(words[::2], [*words[1::2], None], strict=False):
        if name not in options or value is None or words.count(name) > 1:
            raise UserError(f"ui {name}: the options are --port N and --uri URI, each once")
        options[name] = value
    if not options["--port"].isdecimal() or not 0 < int(options["--port"]) < 2**16:
        raise UserError(f"ui --port {options['--port']}: must be a number from 1 to {2**16 - 1}")
    return serve_ui(resolve_uri(options["--uri"] or None, Path.cwd()), int(options["--port"]))
