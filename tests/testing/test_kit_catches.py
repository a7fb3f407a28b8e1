"""The kit finds each kind of fault, says which rule is broken, and shows a small scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slotlab import Policy
from slotlab.lab.plugins import load_file
from slotlab.testing import (
    Nonconformance,
    check_admission,
    check_batching,
    check_engine,
    check_modifier,
    check_policy,
    check_predictor,
    check_preemption,
    check_workload,
)

FILES = [load_file(path) for path in sorted(Path(__file__).parent.glob("broken_*.py"))]


def broken(name: str) -> Any:
    """The broken plugin of that name."""
    return next(getattr(file, name) for file in FILES if hasattr(file, name))


CAUGHT: list[tuple[Callable[..., None], str, dict[str, Any], str]] = [
    (
        check_policy,
        "Starving",
        {},
        "`work conservation`: request 0 waits at 0 beside a free slot and free tokens, and `order` leaves",
    ),
    (
        check_policy,
        "Starving",
        {"work_conserving": False},
        "`liveness`: Starving: request 0: nothing runs, and nothing would wake",
    ),
    (check_policy, "Twice", {}, "`no errors`: Twice: request 0: order named it twice"),
    (check_policy, "Unknown", {}, "`no errors`: Unknown: request .: order named it twice, or it is not waiting"),
    (check_policy, "TwiceRunning", {}, "`no errors`: TwiceRunning: request 0: order_running named it twice"),
    (
        check_policy,
        "LyingQuiet",
        {},
        "`jumps`: .* of request . is .* with jumps and .* in single steps: `quiet` promises too much",
    ),
    (check_policy, "ShortFirst", {"max_bypass": 4}, "`bounded bypass`: 5 later arrivals start before request .; claimed: 4"),
    (check_policy, "ByAddress", {}, "`determinism`: at 0 the plan is {.*}, and when the scenario is repeated {.*} at 0"),
    (check_policy, "ByHash", {}, "`determinism`: another PYTHONHASHSEED gives other results"),
    (check_policy, "Dice", {}, r"`pure`: key answered 0\.\d+, and asked again 0\.\d+"),
    (check_policy, "OtherEachTime", {}, "`determinism`: "),
    (check_policy, "Raising", {}, "`no errors`: Raising: started raised KeyError: ."),
    (
        check_policy,
        "Sorting",
        {},
        "`cost`: a step beside 1,000 .* calls more than by default; most of them, .*, under order; allowed: 4,000",
    ),
    (check_policy, "SlowArrivals", {"max_calls": 500}, "`cost`: .* under arrived; allowed: 500"),
    (check_policy, "Writing", {}, "`read only`: arrived wrote to a request: priority of request . from . to 0"),
    (check_policy, "WritingLate", {}, "`read only`: order wrote to a request: bypassed of request 0 from 0 to 1"),
    (check_policy, "Turning", {}, "`pure`: order changed the plugin's _turn: 0 became 1; only events may"),
    (check_policy, "TurningLate", {}, "`pure`: order changed the plugin's _turns"),
    (check_policy, "NotANumber", {}, "`comparable keys`: key answered nan, which has no place in an order"),
    (check_policy, "Mixed", {}, "`comparable keys`: key answers numbers for some requests and tuples for others"),
    (check_policy, "Worded", {}, "`comparable keys`: rank answered 'a': must be a number, or a tuple of numbers"),
    (check_policy, "Hoarding", {}, r"`forgetting`: _seen grew from \d+ to \d+ values while 80 requests came and left"),
    (check_policy, "CountsCalls", {}, "`jumps`: `served` of several steps is not that of each: _steps: [0-9]+ became [0-9]+"),
    (check_policy, "NoDataclass", {}, "`offer`: NoDataclass is not a dataclass itself.* write `@dataclass` above the class"),
    (check_policy, "Shut", {}, "`offer`: Shut does not derive from Policy: write `class Shut"),
    (check_modifier, "Deaf", {}, "`accounts`: it keeps started of request 0 from the policy that it wraps"),
    (check_modifier, "Cutting", {}, "`work conservation`: request 1 waits"),
    (check_preemption, "Merciful", {}, "`liveness`: Merciful: request .: nothing runs, and nothing would wake it"),
    (check_preemption, "Stranger", {}, "`no errors`: Stranger: request .: victims named it twice, or it was not offered"),
    (check_preemption, "RoundRobin", {}, "`pure`: victims changed the plugin's _last"),
    (check_admission, "Stingy", {}, "`liveness`: Stingy: request 0: nothing runs, and nothing would wake it"),
    (check_admission, "HoldsForEver", {}, "`liveness`: HoldsForEver: request 0: nothing runs"),
    (check_admission, "Counting", {}, "`pure`: reserve changed the plugin's _asked: 0 became 1"),
    (check_batching, "Shut", {}, "`liveness`: Shut: request .: nothing runs, and nothing would wake it"),
    (check_batching, "LyingGate", {}, "`jumps`: .*: `quiet` promises too much"),
    (check_batching, "Forgetful", {}, "`pure`: gate changed the plugin's _steps: 0 became 1"),
    (check_batching, "Idle", {}, "`liveness`: Idle: request 0: nothing runs"),
    (check_batching, "Picky", {}, "`no errors`: it declines .* scenarios: picky.mood=bad: must be good"),
    (check_predictor, "Peeking", {}, "`no errors`: TypeError"),
    (check_predictor, "Clairvoyant", {}, "`no errors`: AttributeError: 'Request' object has no attribute 'emitted'"),
    (check_predictor, "Remembering", {}, "`determinism`: the estimate for request 0 is"),
    (check_predictor, "Halves", {}, "`whole numbers`: predict answered 0.5"),
    (check_predictor, "Learning", {}, "`pure`: predict changed the predictor's _guesses"),
    (check_predictor, "HashedGuess", {}, "`determinism`: another PYTHONHASHSEED gives other results"),
    (check_workload, "Unsorted", {}, "`arrivals`: arrival 1 has time 18.0 after 19.0: must not go back"),
    (check_workload, "GlobalRandom", {}, "`determinism`: arrival 0 has prompt_tokens .* from a new object"),
    (check_workload, "HashedTenants", {}, "`determinism`: another PYTHONHASHSEED gives other results"),
    (check_workload, "OnlyOnce", {}, "`determinism`: 20 arrivals, and 0 from one that has drawn before"),
    (check_workload, "Overlong", {}, "`arrivals`: arrival 0 has output_tokens 9: must be at most max_tokens, 8"),
    (check_engine, "Hasty", {}, "`results`: request . emitted 1 tokens where 0 were due: [0-9]+ of [0-9]+ were computed"),
    (check_engine, "Timeless", {}, "`results`: a step took 0.0 seconds: must be greater than 0"),
    (check_engine, "Endless", {}, "`results`: request 0 has emitted 1 of 1 tokens and goes on"),
    (check_engine, "Leaping", {}, "`results`: a step begins at .*, and none may at or after"),
    (check_engine, "Warming", {}, "`begin`: a scenario that is served again after `begin` goes otherwise"),
    (check_engine, "Meddling", {}, "`read only`: it wrote to request 0"),
    (check_engine, "Refusing", {}, "`no errors`: it declines a plan without swaps: engine: two requests at most"),
]


@pytest.mark.parametrize(
    ("check", "name", "claims", "message"), CAUGHT, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_fault_is_caught_by_name_and_rule(check, name, claims, message):
    with pytest.raises(Nonconformance, match=f"^{name} breaks the rule {message}") as caught:
        check(broken(name), **claims)
    first, *scenario = str(caught.value).splitlines()
    assert len(scenario) <= 1, "more than the scenario follows the first line"
    assert len(first) < 400


def test_the_scenario_that_is_shown_is_small():
    with pytest.raises(Nonconformance) as caught:
        check_policy(broken("Twice"))
    assert str(caught.value).splitlines()[1] == (
        "  the smallest scenario found: 1 slots, 512 tokens a step, 6 blocks of 1; "
        "beside fcfs, continuous, prompt, newest, cap; requests [@0 1+1]"
    )


def test_a_class_that_no_other_process_can_import_is_an_error_that_says_what_to_do():
    @dataclass
    class Local(Policy):
        """Fine otherwise."""

    with pytest.raises(Nonconformance, match=r"^Local breaks the rule `offer`: .* move the class to the top level of its"):
        check_policy(Local)
