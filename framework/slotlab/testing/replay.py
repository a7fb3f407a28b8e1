"""The same scenarios in new processes, under a few seeds of Python's string hashes."""

from __future__ import annotations

import base64
import hashlib
import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any

from slotlab.lab.offers import class_of
from slotlab.testing.faults import Nonconformance
from slotlab.testing.fresh import title

SEEDS = ("1", "2", "7")
LOST = 3  # exit status of a process that cannot find the plugin
Reference = tuple[str, str, str, bytes | None]  # module, file, qualified name, options of a preset


def refer(plugin: Any) -> Reference:
    """Where to find `plugin` again, and the options of a preset."""
    cls = class_of(plugin)
    options = None
    if not isinstance(plugin, type):
        options = pickle.dumps({f.name: getattr(plugin, f.name) for f in fields(plugin) if f.init})
    return cls.__module__, inspect.getsourcefile(cls) or "", cls.__qualname__, options


def resolve(reference: Reference) -> Any:
    """The plugin again, in another process: from its module if that can be imported there, else from its file."""
    name, file, path, options = reference
    found: Any = load(name, file)
    for part in path.split("."):
        found = getattr(found, part)
    return found if options is None else found(**pickle.loads(options))


def load(name: str, file: str) -> Any:
    """The module `name`, which lies in `file`."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # its package is not there, or it is the main module
        spec = None
    if spec is not None and spec.origin == file:
        return import_module(name)
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is not a Python file"
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_under_hash_seeds(plugins: Mapping[str, Any], task: str, values: Sequence[Any]) -> None:
    """Fail unless `task` ("module:function", of the plugins and one value) gives the same under all seeds for every value.

    The first of `plugins` is the one under test.
    """
    name = title(next(iter(plugins.values())))
    references = {kind: refer(plugin) for kind, plugin in plugins.items()}
    order = pickle.dumps((sys.path, references, task, [pickle.dumps(value) for value in values]))
    children = [start(seed) for seed in SEEDS]
    outputs = [child.communicate(base64.b64encode(order).decode()) for child in children]
    for child, (_, errors) in zip(children, outputs, strict=True):
        last = "".join(errors.strip().splitlines()[-1:])
        if child.returncode == LOST:
            what = f"it cannot be imported in a new process ({last}): put its class into a module of its own"
            raise Nonconformance(name, "offer", what)
        if child.returncode:
            raise Nonconformance(name, "no errors", f"in a new process: {last}")
    for value, *digests in zip(values, *(out.split() for out, _ in outputs), strict=True):
        if len(set(digests)) > 1:
            what = "another PYTHONHASHSEED gives other results: it depends on hash() or on the order of a set"
            raise Nonconformance(name, "determinism", what, value)


def start(seed: str) -> subprocess.Popen[str]:
    """A process that waits for its order."""
    code = "from slotlab.testing.replay import child; child()"
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def child() -> None:
    """Do what the standard input says; print a digest for each value."""
    paths, references, task, values = pickle.loads(base64.b64decode(sys.stdin.read()))
    sys.path[:] = paths
    try:
        plugins = {name: resolve(reference) for name, reference in references.items()}
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(LOST)
    module, _, function = task.partition(":")
    perform = getattr(import_module(module), function)
    for value in values:
        print(hashlib.sha256(repr(perform(plugins, pickle.loads(value))).encode()).hexdigest())
