"""The Hydra application: words are composed and run, once or in a sweep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from slotlab.errors import UserError
from slotlab.lab.config import build_part, conf_dir
from slotlab.lab.folder import new_run_id
from slotlab.lab.help import offer_help
from slotlab.lab.plugins import plugins
from slotlab.lab.run import Place, Run
from slotlab.lab.sweep import Sweep, swept_name
from slotlab.lab.words import read_line
from slotlab.tracking import take_password


def run_app(words: list[str], config: str = "config") -> int:
    """Compose and run, once or in a sweep, `config` under the words. However a sweep ends, its table and figures are written."""
    line = read_line(words)
    sys.argv[1:] = line.words  # where Hydra looks
    offer_help()
    name, sweep = new_run_id(), Sweep(line.swept)
    OmegaConf.register_new_resolver("run_id", lambda: name, use_cache=True, replace=True)

    @hydra.main(version_base="1.3", config_path=conf_dir(), config_name=config)
    def job(cfg: DictConfig) -> None:
        try:
            run_job(cfg, sweep)
        except Exception as error:  # kept from Hydra, which would print it in its own way
            sweep.error = error

    try:
        job()
    finally:
        sweep.close()
    if sweep.error:
        raise sweep.error
    if not sweep.jobs and line.flags.multirun:
        raise UserError(f"{' '.join(words)}: the sweep is empty; `slotlab plugins` lists what there is")
    return 1 if sweep.failed else 0


def run_job(cfg: DictConfig, sweep: Sweep) -> None:
    """One composed config: a single run, or a job of a sweep."""
    if uri := OmegaConf.select(cfg, "tracking.uri"):  # from a file or a variable; of a word, `read_line` has taken it
        cfg.tracking.uri = take_password(uri)
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
    if settings.job.config_name == "config" and choose_native(cfg, choices, list(settings.overrides.task)):
        choices["load"] = "native"
    if many:
        sweep.run(cfg, place)
    else:
        Run(cfg, place).execute()


def typed(names: Sequence[str]) -> str:
    """The chosen modifiers as they are typed; Hydra's own list of choices has no room for several."""
    return f"[{','.join(names)}]" if len(names) > 1 else "".join(names) or "none"


def choose_native(cfg: DictConfig, choices: dict[str, str], overrides: list[str]) -> bool:
    """A workload with times of its own is served at those times, unless a load was asked for; says so."""
    from slotlab.lab.progress import console

    asked = any(word.lstrip("+~").startswith(("load=", "load.")) for word in overrides)
    if asked or choices["load"] != "rates" or not has_own_times(cfg.workload):
        return False
    native = ConfigStore.instance().load("load/native.yaml").node
    OmegaConf.set_struct(cfg, False)
    cfg.load = native
    console.print(f"load=native: workload={choices['workload']} has times of its own (load=rates scales them)")
    return True


def has_own_times(node: DictConfig) -> bool:
    """Whether the workload has; one that cannot be built says why when the run is built."""
    try:
        return bool(build_part(node, "workload").own_times)
    except UserError:
        return False
