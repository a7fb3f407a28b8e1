"""The command `slotlab`: which command a line asks for, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from types import FrameType
from typing import NoReturn

from slotlab.errors import PluginError, UserError
from slotlab.lab.complaints import ConfigError, explain
from slotlab.lab.run import Terminated
from slotlab.names import shown
from slotlab.tracking import TrackingError

COMMANDS = {  # by first word; any other line is a run
    "plugins": "slotlab.lab.listing:show_plugins",
    "rerun": "slotlab.lab.rerun:rerun",
    "compare": "slotlab.lab.compare:compare_runs",
    "export": "slotlab.lab.export:export_run",
    "ui": "slotlab.lab.ui:show_ui",
}


def main() -> NoReturn:
    """The console script."""
    sys.exit(command(sys.argv[1:]))


def command(words: list[str]) -> int:
    """Run the command line; the exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not to Hydra's printer
    signal.signal(signal.SIGTERM, terminate)
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
    except KeyboardInterrupt:
        return complain("interrupted; what was measured is kept", 130)
    except Terminated:
        return complain("terminated; what was measured is kept", 143)


def dispatch(words: list[str]) -> int:
    """What the first word asks for; a run, if it is none of ours."""
    asked = COMMANDS.get(words[0] if words else "")
    run: Callable[[list[str]], int] = resolve_name(asked or "slotlab.lab.app:run_app")  # each imports what it needs
    return run(words[1:] if asked else words)


def is_from_hydra(error: BaseException) -> bool:
    """Whether Hydra raised it: it answers some bad overrides with a plain ValueError."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and "hydra" in Path(trace.tb_frame.f_code.co_filename).parts


def complain(line: str, code: int) -> int:
    """Say it on stderr; the code."""
    print(f"slotlab: {shown(line)}", file=sys.stderr)
    return code


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does: partial results are kept."""
    raise Terminated
