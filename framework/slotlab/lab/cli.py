"""The command `slotlab`: a Hydra application, and the words `plugins`, `ui`, `compare` and `export`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from slotlab.errors import PluginError, UserError
from slotlab.lab.complaints import ConfigError, explain
from slotlab.lab.config import conf_dir
from slotlab.lab.folder import new_run_id
from slotlab.lab.plugins import GROUPS, plugins
from slotlab.lab.run import Place, Terminated
from slotlab.lab.sweep import Sweep, swept_keys, swept_name
from slotlab.tracking import TrackingError

USAGE = """slotlab [GROUP=CHOICE ...] [OPTION=VALUE ...]    run; several values and -m: a sweep
slotlab experiment=NAME                         a named sweep
slotlab plugins [--json]                        all choices, and what is broken
slotlab rerun RUN [GROUP=CHOICE ...] [...]      the requests of a run again, under its composition but for what is asked
slotlab compare RUN RUN [RUN ...] [--floor RUN] what differs beyond the noise; RUN: the folder of a run, or of a sweep
slotlab export RUN --format F [--out DIR]       a run's tables as csv, json or parquet
slotlab ui [--port N] [--uri URI]               MLflow on this machine, with the links to the curves

Exit codes: 0 done, 1 a run failed, 2 bad input, 130 Ctrl-C, 143 SIGTERM.
"""


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
    if words[:1] == ["plugins"]:
        return show_plugins(words[1:])
    if words[:1] == ["ui"]:
        return show_ui(words[1:])
    if words[:1] == ["compare"]:
        from slotlab.lab.compare import compare_runs

        return compare_runs(words[1:])
    if words[:1] == ["export"]:
        from slotlab.lab.export import export_run

        return export_run(words[1:])
    if words[:1] == ["rerun"]:
        from slotlab.lab.rerun import rerun_words

        words = rerun_words(words[1:])
    return run_app(words)


def is_from_hydra(error: BaseException) -> bool:
    """Whether Hydra raised it: it answers some bad overrides with a plain ValueError."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and "hydra" in Path(trace.tb_frame.f_code.co_filename).parts


def complain(line: str, code: int) -> int:
    """Say it on stderr; the code."""
    print(f"slotlab: {line}", file=sys.stderr)
    return code


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a run as Ctrl-C does: partial results are kept."""
    raise Terminated


def run_app(words: list[str]) -> int:
    """Compose and run, once or in a sweep. However a sweep ends, its table and figures are written."""
    refuse_words(words)
    words = sorted(words, key=lambda word: word not in ("-m", "--multirun"))  # argparse takes it at the front only
    sys.argv[1:] = words  # where Hydra looks
    offer_help()
    name, sweep = new_run_id(), Sweep(swept_keys(words))
    OmegaConf.register_new_resolver("run_id", lambda: name, use_cache=True, replace=True)

    @hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
    def job(cfg: DictConfig) -> None:
        run_job(cfg, sweep)

    try:
        job()
    finally:
        sweep.close()
    if sweep.error:
        raise sweep.error
    if not sweep.jobs and {"-m", "--multirun"} & set(words):
        raise UserError(f"{' '.join(words)}: the sweep is empty; `slotlab plugins` lists what there is")
    return 1 if sweep.failed else 0


def refuse_words(words: list[str]) -> None:
    """What Hydra would answer with a traceback, or take for something else."""
    groups = {group for group, _ in GROUPS.values()}
    for word in words:
        key, equals, value = word.partition("=")
        group = key.lstrip("~")
        listed = value.startswith("[") and group != "modifier"  # of which there may be several
        if group in groups and (key != group or (equals and (value in ("null", "") or listed))):
            raise UserError(f"{word}: must be one of {', '.join(choices(group))}")
        if key == "modifier" and equals:
            refuse_modifiers(word, value)
        if key == "experiment" and "," in value:
            raise UserError(f"{word}: one experiment at a time, for each brings a sweep of its own")


def choices(group: str) -> list[str]:
    """What plugins and presets offer in a group."""
    return sorted({*plugins().names(group), *(path.stem for path in Path(conf_dir(), group).glob("*.yaml"))})


def refuse_modifiers(word: str, value: str) -> None:
    """Lists of modifiers in which there is something else than names, or one twice."""
    for inner in re.findall(r"\[([^\]]*)\]?", value):
        names = [name.strip() for name in inner.split(",")] if inner else []
        if any(not re.fullmatch("[a-z][a-z0-9_]*", name) or name == "null" for name in names):
            raise UserError(f"{word}: must be one of {', '.join(choices('modifier'))}, or a list as [aging,tenant_cap]")
        if len({*names}) < len(names):
            raise UserError(f"{word}: a modifier may be chosen once")


def run_job(cfg: DictConfig, sweep: Sweep) -> None:
    """One composed config: a single run, or a job of a sweep."""
    settings = HydraConfig.get()
    many = settings.mode == RunMode.MULTIRUN
    choices = {key: value for key, value in settings.runtime.choices.items() if not key.startswith("hydra/")}
    choices["modifier"] = typed([*cfg.modifier])
    folder, cwd = Path(settings.runtime.output_dir).absolute(), Path(settings.runtime.cwd)
    experiment = choices.pop("experiment", None) or "slotlab"
    place = Place(
        folder=folder,
        sweep=(cwd / settings.sweep.dir).absolute() if many else folder,
        cwd=cwd,
        name=swept_name(settings, choices, sweep.keys) if many else choices["policy"],
        experiment=experiment,
        choices=choices,
        plugins=plugins().versions(),
    )
    if choose_native(cfg, choices, list(settings.overrides.task)):
        choices["load"] = "native"
    if many:
        sweep.run(cfg, place)
    else:
        sweep.run_single(cfg, place)


def typed(names: Sequence[str]) -> str:
    """The chosen modifiers as they are typed; Hydra's own list of choices has no room for several."""
    return f"[{','.join(names)}]" if len(names) > 1 else "".join(names) or "none"


def choose_native(cfg: DictConfig, choices: dict[str, str], overrides: list[str]) -> bool:
    """A workload with times of its own is served at those times, unless a load was asked for; says so."""
    from slotlab.lab.progress import console

    kind = OmegaConf.get_type(cfg.workload)
    asked = any(word.lstrip("+~").startswith(("load=", "load.")) for word in overrides)
    if asked or choices["load"] != "rates" or not getattr(kind, "own_times", False):
        return False
    native = ConfigStore.instance().load("load/native.yaml").node
    OmegaConf.set_struct(cfg, False)
    cfg.load = native
    console.print(f"load=native: workload={choices['workload']} has times of its own (load=rates scales them)")
    return True


def offer_help() -> None:
    """`--help` lists every choice with the first line of its docstring."""
    lines = [USAGE, "Choices:"]
    for group, _ in GROUPS.values():
        lines.append(f"  {group}")
        lines += [f"    {c.name:<18} {c.summary}" for c in plugins().everything() if c.group == group and not c.error]
    presets = {path.parent.name for path in Path(conf_dir()).glob("*/*.yaml")}
    for group in sorted(presets):
        lines.append(f"  {group} (presets in conf/{group}/)")
        for path in sorted(Path(conf_dir(), group).glob("*.yaml")):
            notes = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ") and "@package" not in line]
            lines.append(f"    {path.stem:<18} {notes[0] if notes else ''}")
    text = "\n".join(lines).replace("$", "$$") + "\n\nOptions of this composition:\n$CONFIG\n"
    node: dict[str, Any] = {"app_name": "slotlab", "header": "", "footer": "", "template": text}
    ConfigStore.instance().store(group="hydra/help", name="slotlab", node=node, provider="slotlab")


def show_plugins(words: list[str]) -> int:
    """`slotlab plugins`: everything that can be chosen, and what cannot and why."""
    if words not in ([], ["--json"]):
        raise UserError(f"plugins {' '.join(words)}: the only option is --json")
    rows = [asdict(choice) for choice in plugins().everything()]
    if words:
        print(json.dumps(rows, indent=1))
        return 0
    from slotlab.lab.report import print_table

    shown = [{**row, "summary": (row["error"] and f"BROKEN: {row['error']}") or row["summary"]} for row in rows]
    print_table("", ["group", "name", "plugin", "version", "where", "summary"], shown)
    return 0


def show_ui(words: list[str]) -> int:
    """`slotlab ui`: the MLflow server on loopback."""
    from slotlab.tracking import resolve_uri
    from slotlab.tracking.server import serve_ui

    options = {"--port": "5000", "--uri": ""}
    for name, value in zip(words[::2], [*words[1::2], None], strict=False):
        if name not in options or value is None:
            raise UserError(f"ui {name}: the options are --port N and --uri URI")
        options[name] = value
    if not options["--port"].isdecimal():
        raise UserError(f"ui --port {options['--port']}: must be a number")
    return serve_ui(resolve_uri(options["--uri"] or None, Path.cwd()), int(options["--port"]))
