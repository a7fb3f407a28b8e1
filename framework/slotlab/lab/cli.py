"""The command `slotlab`: which command a line asks for, and how it ends.

The imports that take their time stand inside, after the signals are answered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from slotlab import signals

COMMANDS = {  # by first word; any other line is a run
    "plugins": "slotlab.lab.listing:show_plugins",
    "rerun": "slotlab.lab.rerun:rerun",
    "compare": "slotlab.lab.compare:compare_runs",
    "export": "slotlab.lab.export:export_run",
    "ui": "slotlab.lab.ui:show_ui",
}


def main() -> NoReturn:
    """The console script."""
    signals.install()
    code = command(sys.argv[1:])
    signals.ignore()
    sys.exit(code)


def command(words: list[str]) -> int:
    """Run the command line; the exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not to Hydra's printer
    from slotlab.errors import PluginError, UserError
    from slotlab.lab.complaints import ConfigError, explain
    from slotlab.tracking import TrackingError

    try:
        return dispatch(words)
    except (UserError, TrackingError, *ConfigError) as error:
        return complain(explain(error), 2)
    except PluginError as error:
        return complain(str(error), 1)
    except BrokenPipeError:  # as in `slotlab plugins | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)
    except ValueError as error:
        if not is_from_hydra(error):
            raise
        return complain(explain(error), 2)
    except signals.Stopped as stopped:
        return complain(f"{stopped.word}; what was measured is kept", stopped.code)


def dispatch(words: list[str]) -> int:
    """What the first word asks for; a run, if it is none of ours."""
    from pkgutil import resolve_name

    asked = COMMANDS.get(words[0] if words else "")
    run: Callable[[list[str]], int] = resolve_name(asked or "slotlab.lab.app:run_app")  # each imports what it needs
    return run(words[1:] if asked else words)


def is_from_hydra(error: BaseException) -> bool:
    """Whether Hydra raised it: it answers some bad overrides with a plain ValueError."""
    from pathlib import Path

    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and "hydra" in Path(trace.tb_frame.f_code.co_filename).parts


def complain(line: str, code: int) -> int:
    """Say it on stderr; the code."""
    from slotlab.names import shown
    from slotlab.tracking import without_password

    print(f"slotlab: {without_password(shown(line))}", file=sys.stderr)
    return code
