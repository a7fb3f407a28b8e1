"""Words that vanish: whatever a run or a sweep cannot obey is refused, judged by the parsed override and not by its text."""

from __future__ import annotations

import pytest

from slotlab import UserError
from slotlab.lab.words import read_line

TWICE = [
    "-m policy=fcfs,sjf workload.prompt={mean:32} workload.prompt={low:8}",
    "-m policy=fcfs,sjf policy=vtc",
    "policy=fcfs policy=sjf",
    "seed=1 seed=2",
    "seed=1 +seed=2",
    "seed=1 ++seed=2",
    "++engine.ops.rope=torch ~engine.ops.rope",
    "slo={ttft:1} slo.ttft=2",
    "slo.ttft=2 slo={ttft:1}",
    "-m slo={ttft:1},{tpot:1} slo.tpot=2",
    "workload=chat workload={requests:5}",
    "--cfg job --cfg all",
]


@pytest.mark.parametrize("words", TWICE)
def test_what_is_given_twice_is_refused_in_any_spelling(words):
    with pytest.raises(UserError, match="given once"):
        read_line(words.split())


@pytest.mark.parametrize(
    "words", ["workload.prompt={mean:32} workload.prompt.low=8", "policy=sjf policy.aging=1", "slo.ttft=1 slo.tpot=1"]
)
def test_what_sets_several_options_of_one_part_is_obeyed(words):
    assert read_line(words.split()).words == words.split()


@pytest.mark.parametrize(
    "word",
    ["a_a,pad_waste", "glob(*)", "choice(a_a,pad_waste)", "choice(a_a)", "[a_a,pad_waste]", "sort(a_a,pad_waste)", "range(1,3)"],
)
def test_a_sweep_over_experiments_is_refused_in_any_spelling(word):
    with pytest.raises(UserError, match="one experiment at a time"):
        read_line(["-m", f"experiment={word}"])


NO_NAMES = """~policy +policy=sjf policy@x=sjf policy=[fcfs] policy=1 policy=null policy= policy=../policy/sjf_oracle
policy=[fcfs],[sjf] policy=range(1,3) modifier=[[aging]] modifier=[aging,aging] modifier=[aging],[aging,aging]
experiment=null ~experiment experiment=../workload/chat ~seed ~slo"""


@pytest.mark.parametrize("word", NO_NAMES.split())
def test_a_group_takes_names_of_its_choices_alone(word):
    with pytest.raises(UserError) as error:
        read_line(["-m", word])
    assert str(error.value).startswith(f"{word}: ") and "\n" not in str(error.value)


HYDRA = """hydra.mode=RUN hydra.mode=MULTIRUN hydra.job.chdir=true hydra.sweep.subdir=a/b hydra/launcher=joblib hydra=null
+hydra.callbacks.x={} hydra/job_logging=default hydra.output_subdir=x hydra.sweeper.params.seed=1"""


@pytest.mark.parametrize("word", HYDRA.split())
def test_what_we_rely_on_in_hydra_is_not_changed(word):
    with pytest.raises(UserError, match=r"only hydra\.run\.dir and hydra\.sweep\.dir may be set"):
        read_line([word])


@pytest.mark.parametrize("words", ["-m hydra.run.dir=x", "hydra.sweep.dir=x", "experiment=a_a hydra.run.dir=x"])
def test_a_folder_that_would_not_be_used_is_refused(words):
    with pytest.raises(UserError, match=r"the folder of a (run|sweep) is hydra\.(run|sweep)\.dir"):
        read_line(words.split())


@pytest.mark.parametrize("word", ["+batching.max_num_seqs=2", "++batching.max_num_seqs=2", "batching={max_num_seqs:2}"])
def test_an_option_that_the_experiment_sweeps_over_is_set_in_its_own_spelling_or_refused(word):
    with pytest.raises(UserError, match=r"the experiment sweeps over batching\.max_num_seqs"):
        read_line(["experiment=batch_size", word])
    assert read_line(["experiment=batch_size", "batching.max_num_seqs=2,4"]).many
    assert read_line(["experiment=pad_waste", "batching.max_num_seqs=2"]).many


@pytest.mark.parametrize("flag", ["--experimental-rerun", "--config-name", "--config-path", "--config-dir", "--exper", "--bogus"])
def test_a_flag_that_reads_another_configuration_or_unpickles_one_is_refused(slotlab, tmp_path, flag):
    said = slotlab(flag, "x")
    assert said.code == 2 and flag in said.err and said.err.count("\n") == 1
    assert not (tmp_path / "slotlab-runs").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("-m seed=interval(1,3)", "seed=interval(1,3): an interval has no end of values"),
        ("-m policy=tag(a,choice(fcfs,sjf))", "must be without tag(...)"),
        ("-m seed=range(1,9,0)", "the step of a range must not be 0"),
        ("-m seed=range(0.0,1.0,0)", "the step of a range must not be 0"),
        ("-m seed=shuffle(range(0,1000000000000))", "at most 10000 jobs"),
        ("-m seed=range(0,200) trial=range(0,200)", "at most 10000 jobs"),
        ("--package policy", "must follow --cfg"),
        ("seed", "seed: must be GROUP=CHOICE or OPTION=VALUE"),
        ("=3", "=3: must be GROUP=CHOICE or OPTION=VALUE"),
        ("a=b=c", "a=b=c: must be GROUP=CHOICE or OPTION=VALUE"),
    ],
)
def test_what_no_sweep_can_enumerate_is_refused_before_anything_runs(words, line):
    with pytest.raises(UserError) as error:
        read_line(words.split())
    assert line in str(error.value) and "\n" not in str(error.value)


def test_a_comma_in_quotes_is_no_sweep():
    line = read_line(
        ["-m", 'workload.path="a,b.csv"', "policy=fcfs,sjf", "modifier=[aging],[aging,tenant_cap]", "trial=range(1,3)"]
    )
    assert line.swept == {"policy", "modifier", "trial"}


def test_flags_may_stand_anywhere_and_twice():
    assert read_line(["seed=1,2", "-m", "--multirun"]).words == ["--multirun", "seed=1,2"]


def test_an_interpolation_that_leads_nowhere_is_one_line(slotlab):
    said = slotlab("seed=${nope}")
    assert said.code == 2 and said.err == "slotlab: Interpolation key 'nope' not found\n"
