"""Bad values for every option of every choice, each tried in this process. As a script: the whole product, or a sample of it.

    python tests/lab/option_values.py FOLDER [SAMPLE]

prints one line of JSON for each option that was neither obeyed nor refused in one line with the place and what is allowed.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_dict_key_value_types, get_list_element_type

import slotlab.lab.cli
import slotlab.record.charts
from slotlab.lab.config import Lab, conf_dir
from slotlab.lab.help import offer_help
from slotlab.lab.plugins import plugins
from slotlab.lab.run import Place, Run
from slotlab.lab.words import read_line

SEED = 20260101
SECONDS = 20  # of CPU that a value may take
MEMORY = 8 << 30  # bytes
ODD = ("x", "''", "null", "[]", "{}", "[[1]]", "{a: 1}", "x" * 3000, '"a b=c, {"')
NUMBERS = ("0", "-1", "nan", "inf", "-inf", "1e30", "-1e30", str(10**25), str(2**63), str(2**64), str(-(2**63) - 1), "9" * 5000)
PATHS = ("/", ".", "/no/such/file", "no/such/file", "~", '"a\\x00b"', '"\x00"', "/dev/null", "/proc/self/mem")
REFUSED = re.compile(r"must be|there is|did you mean|no such")


@dataclass(frozen=True)
class Case:
    """A bad value, and what is chosen so that its option is there."""

    option: str
    value: str
    base: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The command line."""
        return (*self.base, f"{self.option}={self.value}")


def scalars(kind: Any) -> Sequence[str]:
    """Bad values, and some that may be good, of a type that has no parts."""
    if kind is int:
        return (*NUMBERS, *ODD, "true", "1.5")
    if kind is float:
        return (*NUMBERS, *ODD, "true", "1e308", "5e-324", "-1e-300")
    if kind is bool:
        return (*NUMBERS, *ODD)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return (*ODD, "0", "-1", "1e30", "true")
    return (*ODD, *PATHS, "0", "-1", "nan", "1e30", "true")


def values(kind: Any) -> Iterator[tuple[str, str]]:
    """Where below an option of this type a bad value stands, and the value."""
    if isinstance(kind, type) and is_dataclass(kind):
        yield from (("", value) for value in ("x", "null", "[]", "1", "{a: 1}"))
        for name, node in parts(OmegaConf.structured(kind)):
            yield from ((f".{name}{below}", value) for below, value in values(node))
    elif get_origin(kind) is list:
        yield from (("", value) for value in ("[]", "[null]", "x", "null", "{}", "{a: 1}", "1"))
        (element,) = get_args(kind)
        if isinstance(element, type) and is_dataclass(element):
            yield from (("", "[{" + f"{way[1:]}: {value}" + "}]") for way, value in values(element) if way.count(".") == 1)
        else:
            yield from (("", f"[{value}]") for value in scalars(element))
    elif get_origin(kind) is dict:
        yield from (("", value) for value in ("[]", "x", "null", "1"))
        yield from (("", "{a: " + value + "}") for value in scalars(get_args(kind)[1]))
    else:
        yield from (("", value) for value in scalars(kind))


def parts(node: DictConfig) -> Iterator[tuple[str, Any]]:
    """The options of a node, and their types."""
    for key in node:
        child: Any = node._get_node(key)
        kind = child._metadata.ref_type
        if get_origin(kind) is None and OmegaConf.is_list(child):
            kind = list[get_list_element_type(kind)]  # type: ignore[misc]
        if get_origin(kind) is None and OmegaConf.is_dict(child) and not is_dataclass(kind):
            kind = dict[get_dict_key_value_types(kind)]  # type: ignore[misc]
        yield str(key), kind


def every_case(folder: Path) -> list[Case]:
    """The whole product. Files that must be there for an option to matter are written into `folder`."""
    cases = []
    for group, name in plugins().choices:
        if name == "text":  # wants a model that can read: tests/plugins/workloads/test_text.py
            continue
        base = (*needs(group, name, folder), f"{group}={name}")
        place = f"modifier.{name}" if group == "modifier" else group
        node = ConfigStore.instance().load(f"{group}/{name}.yaml").node
        for option, kind in parts(node):
            rest = tuple(word for word in base if not word.startswith(f"{place}.{option}="))
            cases += [Case(f"{place}.{option}{below}", value, rest) for below, value in values(kind)]
    base = (*needs("", "", folder),)
    schema = OmegaConf.structured(Lab)
    for node_name in ("slo", "record", "tracking"):
        for option, kind in parts(schema[node_name]):
            cases += [Case(f"{node_name}.{option}{below}", value, base) for below, value in values(kind)]
    cases += [Case(name, value, base) for name in ("seed", "trial") for value in scalars(int)]
    return [case for case in cases if case.option != "tracking.kind"]


def needs(group: str, name: str, folder: Path) -> tuple[str, ...]:
    """What is chosen beside a choice: little work, and the files that it reads."""
    few = () if group == "load" else ("load=native",)
    engine = ("engine=paged",) if group == "model" or name == "paged" else ("engine=simulated",)
    if group == "engine":
        engine = ()
    if group == "model":
        return (
            *engine,
            *few,
            "workload.requests=2",
            *((f"model.path={folder}",) if name in ("folder", "gguf", "transformers") else ()),
        )
    if group != "workload":
        limits = ("load.max_requests=16",) if name == "auto" else ("load.max_repeats=4",) if name == "until_ci" else ()
        return (*engine, *few, *limits, "workload.requests=3", "workload.output.high=8")
    if name == "explicit":
        return (*engine, *few, "workload.lengths=[3,2]", "workload.max_tokens=3")
    if name == "poisson":
        return (*engine, *few, "workload.requests=3")
    return ("engine=simulated", *few, f"workload.path={sample(name, folder)}")


LINES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,5,3\n2023-11-16 18:15:47.5,5,3\n",
    "burstgpt": "Timestamp,Request tokens,Response tokens\n5,5,5\n6,5,3\n",
    "lengths": "num_prefill_tokens,num_decode_tokens\n5,5\n6,3\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n1,5,5\n2,6,3\n",
    "mooncake": '{"timestamp":5,"input_length":5,"output_length":3,"hash_ids":[3]}\n',
    "bailian": '{"chat_id":5,"parent_chat_id":-1,"timestamp":5,"input_length":5,"output_length":3,"type":"text","turn":1,'
    '"hash_ids":[3]}\n',
    "servegen": "0,0.02,1,Gamma,1,50\n600,0.02,1,Gamma,1,50\n",
    "rerun": "",
}


def sample(name: str, folder: Path) -> Path:
    """A small file of the format."""
    path = folder / f"{name}-trace.csv"
    if name == "rerun":
        return recorded(folder)
    path.write_text(LINES[name])
    if name == "servegen":
        lengths = {"input_tokens": "{10: 1.0}", "output_tokens": "{3: 1.0}"}
        (folder / "servegen-dataset.json").write_text(json.dumps({"0": lengths}))
    return path


@cache
def recorded(folder: Path) -> Path:
    """The arrivals of a run."""
    run(("engine=simulated", "load=native", "workload.requests=3"), folder / "recorded")
    return folder / "recorded" / "arrivals.parquet"


@cache
def composed(words: tuple[str, ...]) -> DictConfig:
    """What these words compose to; that is slow, so once for all values of an option."""
    offer_help()
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return compose("config", [*words, "tracking.kind=none"])


def run(words: tuple[str, ...], folder: Path) -> int:
    """As the command does, but for Hydra's start, and for the curve's figure."""
    line = read_line(words)
    cfg = composed(words[:-1]).copy()
    ConfigLoaderImpl._apply_overrides_to_config(line.overrides[-1:], cfg)
    modifiers = ",".join(cfg.modifier) or "none"
    chosen = dict.fromkeys(("policy", "batching", "admission", "preemption", "predictor", "workload", "load"), "it")
    Run(cfg, Place(folder, folder, folder, "it", "slotlab", {**chosen, "modifier": modifiers}, {})).execute()
    return 0


class Hang(BaseException):
    """A value took longer than `SECONDS`."""


def ring(number: int, frame: Any) -> None:
    """The alarm."""
    raise Hang


def fault(case: Case, folder: Path) -> str | None:
    """What is wrong with how a value was treated: `hang`, the end of a traceback, or a line that lacks something."""
    err = io.StringIO()
    signal.signal(signal.SIGPROF, ring)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(30 * SECONDS)  # for what waits
    try:
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            code = slotlab.lab.cli.command(list(case.words))
    except Hang:
        return "hang: " + "".join(traceback.format_exc().splitlines()[-3:])[:300]
    except BaseException:
        return "traceback: " + " | ".join(traceback.format_exc().splitlines()[-3:])[:400]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    said = err.getvalue()
    if code == 0:
        return None
    place = case.option.partition("[")[0]
    if not said.endswith("\n") or said.count("\n") != 1 or len(said) > 1000:
        return f"not one short line: {said[:300]!r}"
    beside = f"{place.partition('.')[0]}."  # of two options that contradict each other the line may name the other one
    if place not in said and beside not in said:
        return f"no place: {said[:300]}"
    return None if code == 2 and REFUSED.search(said) else f"no range ({code}): {said[:300]}"


def main(folder: Path, size: int | None = None) -> None:
    """Try all cases, or a sample."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder.mkdir(parents=True, exist_ok=True)
    slotlab.record.charts.draw_curve = lambda *args, **options: None
    count = iter(range(10**9))
    run_it: Callable[[list[str]], int] = lambda words: run(tuple(words), folder / str(next(count)))  # noqa: E731
    slotlab.lab.cli.dispatch = run_it
    cases = every_case(folder)
    chosen = cases if size is None else random.Random(SEED).sample(cases, size)
    for case in chosen:
        if wrong := fault(case, folder):
            print(json.dumps({"option": case.option, "value": case.value[:80], "fault": wrong, "base": case.base}), flush=True)
    print(json.dumps({"tried": len(chosen), "options": len({case.option for case in cases})}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
