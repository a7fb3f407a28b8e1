"""`slotlab compare`: differences that can be believed, and the word when they cannot."""

from __future__ import annotations

import json
import math

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

RATES = "load.rates=[20,80]"
SIMULATED = ("engine=simulated", RATES, "batching.max_num_seqs=2", "workload.requests=120", "record.oracle=false")
SAME = "no difference beyond the noise"


def rewrite(folder, **values):
    """Change `meta.json`."""
    path = folder / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_policy_against_itself_shows_no_difference(slotlab):
    """The clock is virtual: the runs are equal to the byte, and their floor is nothing."""
    sweep = slotlab("-m", "trial=1,2", *SIMULATED).folder
    said = slotlab("compare", str(sweep))
    assert said.code == 0, said.err
    assert "noise floor: none, for a virtual clock has no noise" in said.out
    assert said.out.splitlines()[-1] == f"trial=2 against trial=1: {SAME}"
    assert not {"won", "lost", "unknown"} & set(said.out.split())


def test_sjf_against_fcfs_past_saturation_is_measured_with_its_interval(slotlab):
    fcfs, sjf = (slotlab(*SIMULATED, f"policy={name}", "load.repeats=6").folder for name in ("fcfs", "sjf_oracle"))
    said = slotlab("compare", str(fcfs), str(sjf))
    assert said.code == 0, said.err
    lines = {cells[1]: cells for line in said.out.splitlines() if len(cells := [cell.strip() for cell in line.split("│")]) == 9}
    assert set(lines) == {
        *(f"{name}_{kind}" for name in ("ttft", "tpot", "e2e") for kind in ("mean", "p99")),
        *("output_throughput", "goodput", "goodput_fraction"),
    }
    first, this, difference = (float(cell) for cell in lines["ttft_mean"][2:5])
    low, high = (float(end) for end in lines["ttft_mean"][5].split(" .. "))
    assert lines["ttft_mean"][7] == "won" and low < difference < high < 0
    assert difference == pytest.approx(this - first, rel=0.01)
    assert "sjf_oracle against fcfs: won on ttft_mean" in said.out


def test_one_repeat_says_nothing_of_throughput(slotlab):
    fcfs, sjf = (slotlab(*SIMULATED, f"policy={name}").folder for name in ("fcfs", "sjf_oracle"))
    said = slotlab("compare", str(fcfs), str(sjf))
    assert "too few repeats" in said.out and "unknown: output_throughput, goodput" in said.out


def test_tenants_bring_fairness(slotlab):
    tenants = "workload.tenants=[{name:a,share:0.9},{name:b,share:0.1,weight:2}]"
    sweep = slotlab("-m", "policy=fcfs,vtc", *SIMULATED, tenants, "load.repeats=6").folder
    said = slotlab("compare", str(sweep))
    assert "fairness_gap" in said.out and "jain_index" in said.out
    assert json.loads((sweep / "1" / "meta.json").read_text())["weights"] == {"a": 1.0, "b": 2.0}


def delay(folder, seconds):
    """Serve everybody so much later, as a machine might do that had something else to do."""
    path = folder / "requests.parquet"
    table = pq.read_table(path)
    for name in ("started", "first_token", "finish"):
        table = table.set_column(table.schema.names.index(name), table.schema.field(name), pc.add(table[name], seconds))
    pq.write_table(table, path)


def test_a_difference_within_the_noise_of_equal_runs_is_none(slotlab):
    """Two runs of one composition that lie beside the two that are compared differ by more than these do."""
    sweep = slotlab("-m", "trial=1,2", "policy=fcfs,sjf_oracle", *SIMULATED, "load.repeats=4").folder
    rewrite(sweep / "0", real=True)
    quiet = slotlab("compare", str(sweep / "0"), str(sweep / "1"))
    assert f"noise floor: from 4 runs that each have an equal, in {sweep}" in quiet.out
    assert "won on ttft_mean" in quiet.out
    delay(sweep / "2", 10.0)
    noisy = slotlab("compare", str(sweep / "0"), str(sweep / "1"))
    assert noisy.code == 0, noisy.err
    assert "won" not in noisy.out and SAME in noisy.out


def test_real_runs_without_a_floor_ask_for_one(slotlab):
    fcfs, sjf = (slotlab(*SIMULATED, f"policy={name}").folder for name in ("fcfs", "sjf"))
    rewrite(fcfs, real=True)
    said = slotlab("compare", str(fcfs), str(sjf))
    assert said.code == 0 and "noise floor: unknown" in said.out and "slotlab experiment=a_a" in said.out
    given = slotlab("compare", str(fcfs), str(sjf), "--floor", str(fcfs))
    assert given.code == 2 and "must hold two or more runs of one composition" in given.err


def test_a_a_measures_the_floor_of_a_composition(slotlab):
    floor = slotlab("experiment=a_a", *SIMULATED).folder
    assert [job["name"] for job in json.loads((floor / "sweep.json").read_text())["jobs"]] == ["trial=1", "trial=2", "trial=3"]
    keys = {json.loads(path.read_text())["run_key"] for path in floor.glob("*/meta.json")}
    assert len(keys) == 1, "a trial is no part of a run's identity"
    sjf = slotlab(*SIMULATED, "policy=sjf").folder
    said = slotlab("compare", str(floor / "0"), str(sjf), "--floor", str(floor))
    assert said.code == 0 and f"noise floor: from 3 runs that each have an equal, in {floor}" in said.out


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (("seed=1",), "workload_digest="),
        (("load.rates=[20,40]",), "load points=20.0/s, 80.0/s in one and 20.0/s, 40.0/s in the other"),
        (("load.rates=[20]",), "load points=20.0/s, 80.0/s in one and 20.0/s in the other"),
        (("slo.ttft=1",), "slo={'ttft': None, 'tpot': None, 'e2e': None} in one and {'ttft': 1.0, "),
        (("engine.cost=unit",), "time_unit=s in one and step in the other"),
        (("load=concurrencies", "load.concurrencies=[20,80]"), "load points=20.0/s, 80.0/s in one and 20 clients, 80 clients in"),
    ],
)
def test_unlike_runs_are_refused_with_the_reason(slotlab, other, line):
    words = [word for word in SIMULATED if word != RATES or not other[0].startswith("load")]
    a, b = slotlab(*SIMULATED).folder, slotlab(*words, *other).folder
    said = slotlab("compare", str(a), str(b))
    assert said.code == 2 and said.err.count("\n") == 1, said.err
    assert f"{a} and {b} are not compared: " in said.err and line in said.err


def test_runs_that_computed_on_other_paths_of_the_processor_are_told_apart(slotlab):
    """Between paths tokens may differ by rounding, and so may the lengths of answers."""
    runs = [slotlab(*SIMULATED).folder for _ in range(2)]
    for run, path in zip(runs, ("cpp (amx)", "cpp (avx2)"), strict=True):
        rewrite(run, engine={"dtype": "bfloat16", "op.linear": path, "op.silu_mul": path, "op.sample": "numba"})
    said = slotlab("compare", *map(str, runs))
    assert (
        "tokens may differ by rounding, for the runs computed otherwise: op.linear, op.silu_mul: cpp (avx2), not cpp (amx)\n"
        in said.out
    )
    assert "computed otherwise" not in slotlab("compare", str(runs[0]), str(runs[0])).out


def test_other_metrics_versions_are_refused(slotlab):
    """guidellm#924: figures of different definitions were laid side by side."""
    a, b = slotlab(*SIMULATED).folder, slotlab(*SIMULATED).folder
    path = b / "requests.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | {b"metrics_version": b"0"}), path)
    said = slotlab("compare", str(a), str(b))
    assert said.code == 2 and "metrics_version=1 in one and 0 in the other" in said.err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "compare : must name two or more runs (or a sweep of them); there is 0"),
        (["nowhere", "there"], "nowhere: must be the folder of a run (with meta.json) or of a sweep (with sweep.json)"),
        (["--flour", "x"], "compare --flour: the only option is --floor RUN"),
        (["x", "--floor"], "compare --floor: must be followed by"),
    ],
)
def test_bad_words_get_one_line(slotlab, words, line):
    said = slotlab("compare", *words)
    assert said.code == 2 and line in said.err and said.err.count("\n") == 1, said.err


def test_an_unfinished_run_is_refused(slotlab):
    a, b = slotlab(*SIMULATED).folder, slotlab(*SIMULATED).folder
    rewrite(b, status="KILLED")
    assert f"{b}: the run is KILLED: must be FINISHED" in slotlab("compare", str(a), str(b)).err


@pytest.mark.parametrize("fate", ["[1,1,1]", "[2,3] workload.prompts=[400,400] engine.num_blocks=4", "[5]"])
def test_every_fate_of_requests_can_be_swept_and_compared(slotlab, fate):
    """guidellm#434, inference-perf (max of no success): one token each, all rejected, a single request."""
    options = f"workload.lengths={fate}".split()
    sweep = slotlab("-m", "policy=fcfs,sjf", "engine=simulated", "workload=explicit", *options).folder
    said = slotlab("compare", str(sweep))
    assert said.code == 0, said.err
    assert f"against fcfs: {SAME}" in said.out
    assert {"curves.png", "table.csv"} <= {path.name for path in sweep.iterdir()}


def test_a_difference_counts_only_beyond_the_noise_and_in_its_own_direction():
    from slotlab.record.contrasts import Contrast
    from slotlab.record.statistics import Interval

    slower = Contrast("ttft_mean", None, 1.0, 1.5, Interval(0.5, 0.3, 0.7))
    assert (slower.outcome(), slower.outcome(0.4), slower.outcome(0.5)) == ("lost", "lost", "no difference")
    assert Contrast("goodput", None, 1.0, 1.5, Interval(0.5, 0.3, 0.7)).outcome() == "won"
    assert (slower.reach, Contrast("goodput", None, 1, 2, Interval(1, -math.inf, math.inf)).reach) == (0.7, 1)
