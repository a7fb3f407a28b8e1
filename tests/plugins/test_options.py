"""Options of built-in plugins: ranges, presets, and the loads that are given as numbers."""

from __future__ import annotations

import math

import pytest

from slotlab import Point, UserError
from slotlab_plugins import collect
from slotlab_plugins.admission.prompt import Prompt
from slotlab_plugins.batching.continuous import Continuous
from slotlab_plugins.engines.simulated import Simulated
from slotlab_plugins.loads.swept import Concurrencies, Multiples, Native, Rates
from slotlab_plugins.policies.priority import Priority
from slotlab_plugins.policies.sjf import SJF
from slotlab_plugins.policies.vtc import VTC


class Idle:
    """An engine whose capacity is known."""

    def capacity(self) -> float:
        return 8.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SJF(aging=-1.0), "aging=-1.0: must be at least 0 and at most 1e+06"),
        (lambda: Priority(aging=-0.5), "aging=-0.5: must be at least 0 and at most 1e+06"),
        (lambda: VTC(input_price=-1), "input_price=-1: must be at least 0 and at most 1000000"),
        (lambda: VTC(output_price=-1), "output_price=-1: must be at least 0 and at most 1000000"),
        (lambda: Prompt(watermark=1.0), "watermark=1.0: must be at least 0 and below 1"),
        (lambda: Continuous(0), "max_num_seqs=0: must be at least 1 and at most 1000000"),
        (lambda: Continuous(4, 0), "max_num_batched_tokens=0: must be at least 1 and at most 1000000000"),
        (lambda: Simulated(cost="cubic"), "cost=cubic: must be unit or linear"),
        (lambda: Simulated(per_token=-1.0), "per_token=-1.0: must be at least 0 and at most 1000"),
        (lambda: Simulated(per_step=0.0), "per_step=0.0: must be at least 1e-09 under cost=linear"),
        (lambda: Simulated(num_blocks=0), "num_blocks=0: must be from 1 to 10000000"),
        (lambda: Simulated(device="tpu"), "device=tpu: must be auto, cpu or cuda"),
        (lambda: Rates(rates=[]), "rates=[]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: Rates(rates=[1.0, 0.0]), "rates=[1.0, 0.0]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: Multiples(multiples=[-1.0]), "multiples=[-1.0]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: Concurrencies(concurrencies=[0]), "concurrencies=[0]: must be 1 to 1000 numbers from 1e-06 to 1e+09"),
        (lambda: Native(repeats=0), "repeats=0: must be at least 1 and at most 1000"),
        (lambda: Rates(repeats=0), "repeats=0: must be at least 1 and at most 1000"),
    ],
)
def test_an_option_out_of_range_is_refused_in_one_line(make, message):
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize("make", [SJF, Priority, Prompt, lambda x: Rates(rates=[x]), lambda x: Simulated(per_step=x)])
def test_an_option_that_is_no_number_is_refused(make):
    with pytest.raises(UserError):
        make(math.nan)


def test_a_load_without_end_is_refused():
    with pytest.raises(UserError):
        Rates(rates=[1.0, math.inf])


@pytest.mark.parametrize(
    ("load", "points"),
    [
        (Rates(rates=[4.0, 1.0]), [Point(rate=1.0), Point(rate=4.0)]),
        (Multiples(multiples=[1.5, 0.5]), [Point(rate=4.0), Point(rate=12.0)]),
        (Concurrencies(concurrencies=[8, 2]), [Point(concurrency=2), Point(concurrency=8)]),
        (Native(), [Point()]),
    ],
)
def test_points_go_from_the_lowest_load_to_the_highest(load, points):
    assert load.points(Idle()) == points


def test_the_built_in_choices_are_all_there():
    policies = ["drr", "edf", "fcfs", "hrrn", "lifo", "lpm", "mlfq", "priority", "priority_displace", "random", "sjf", "srpt"]
    assert sorted(collect("policies")) == [*policies, "vtc", "wfq"]
    assert sorted(collect("modifiers")) == ["aging", "bypass_cap", "pin_preempted", "tenant_cap"]
    assert sorted(collect("batching")) == ["continuous", "dynamic", "orca", "prefill_first", "sarathi", "static"]
    assert sorted(collect("admission")) == ["chunk", "peak", "prompt", "queue_timeout", "rate_limit", "reserve_max"]
    assert sorted(collect("preemption")) == ["least_computed", "lowest_rank", "most_blocks", "newest"]
    assert sorted(collect("predictors")) == ["constant", "history", "noisy", "noisy_tau", "none", "oracle"]
    traces = ["azure", "bailian", "burstgpt", "lengths", "mooncake", "rerun", "servegen", "vidur"]
    assert sorted(collect("workloads")) == sorted([*traces, "explicit", "poisson", "text"])
    assert sorted(collect("loads")) == ["auto", "concurrencies", "multiples", "native", "rates", "until_ci"]
