"""What plugins answer outside the loop is checked: one line in the plugin's name, exit code 1, and what was measured kept."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest

from slotlab import Point
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.loads.swept import Native
from slotlab_plugins.workloads.explicit import Explicit

FEW = ("engine=simulated", "engine.cost=unit", "workload=explicit", "workload.lengths=[5,3,4]", "load=native")


def answers(value):
    return lambda *_: value


def raises(*_):
    raise OSError("out of order")


@pytest.mark.parametrize(
    ("plugin", "hook", "answer", "line"),
    (
        (Simulated, "caps", raises, "Simulated: caps raised OSError: out of order"),
        (Simulated, "open", answers(None), "Simulated: open answered None: must be a mapping of str to str"),
        (Simulated, "open", answers({"blocks": 7}), "Simulated: open answered {'blocks': 7}: must be a mapping of str to str"),
        (Simulated, "prepare", answers(None), "Simulated: prepare answered None: must be Iterable"),
        (Simulated, "prepare", answers([]), "Simulated: prepare made 0 arrivals of 3: must be an Arrival for each"),
        (Simulated, "begin", raises, "Simulated: begin raised OSError: out of order"),
        (Simulated, "clock", answers(None), "Simulated: clock raised AttributeError: 'NoneType' object has no attribute 'now'"),
        (Explicit, "facts", answers("none"), "Explicit: facts answered 'none': must be a mapping of str to str"),
        (Native, "draws", property(answers(0)), "Native: draws answered 0: must be at least 1"),
        (Native, "draws", property(answers("3")), "Native: draws answered '3': must be a whole number"),
        (Native, "points", answers(None), "Native: points answered None: must be Iterable"),
        (Native, "points", answers([2.0]), "Native: points answered 2.0: must be a Point"),
        (Native, "points", answers([Point(rate=0)]), "rate must be finite and greater than 0"),
        (Native, "points", answers([Point(rate=math.nan)]), "rate must be finite and greater than 0"),
        (Native, "points", answers([Point(rate=-1.0)]), "rate must be finite and greater than 0"),
        (Native, "points", answers([Point(concurrency=0)]), "concurrency must be a whole number of at least 1"),
        (Native, "points", answers([Point(), Point()]), "must be there once"),
        (Native, "ref_index", answers(1), "Native: ref_index answered 1: must be from 0 to 0"),
        (Native, "ref_index", answers(None), "Native: ref_index answered None: must be a whole number"),
    ),
)
def test_a_wrong_answer_is_one_line_in_the_plugins_name(slotlab, monkeypatch, plugin, hook, answer, line):
    monkeypatch.setattr(plugin, hook, answer)
    said = slotlab(*FEW)
    assert said.code == 1, said.err
    assert said.err.startswith(f"slotlab: {plugin.__name__}: ") and line in said.err and said.err.count("\n") == 1
    assert json.loads((said.folder / "meta.json").read_text())["status"] == "FAILED"


def test_an_engine_that_cannot_be_closed_costs_no_measurement(slotlab, monkeypatch):
    monkeypatch.setattr(Simulated, "close", raises)
    said = slotlab(*FEW)
    assert said.code == 1 and said.err == "slotlab: Simulated: close raised OSError: out of order\n"
    meta = json.loads((said.folder / "meta.json").read_text())
    assert meta["status"] == "FAILED" and meta["scalars"]
    assert len(pd.read_parquet(said.folder / "requests.parquet")) == 3
