"""What the core refuses, and whom it names when it does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from slotlab import (
    Admission,
    Batching,
    Closed,
    Evict,
    Hold,
    Misfit,
    Open,
    PluginError,
    Policy,
    Predictor,
    Preemption,
    Quiet,
    RequestView,
    Status,
    StepBudget,
    Verdict,
    View,
)
from slotlab_plugins.preemption.victims import LowestRank

HOOKS: dict[type, list[str]] = {
    Policy: [
        *("lane", "key", "rank", "order", "order_running", "on_misfit", "quiet"),
        *("arrived", "started", "served", "preempted", "left"),
    ],
    Batching: ["gate", "budget", "quota", "quiet"],
    Admission: ["admit", "reserve", "quiet"],
    Preemption: ["victims", "quiet"],
    Predictor: ["predict", "finished"],
}
GROUPS = {Policy: "policy", Batching: "batching", Admission: "admission", Preemption: "preemption", Predictor: "predictor"}
EVERY_HOOK = [(base, hook) for base, hooks in HOOKS.items() for hook in hooks]


@dataclass
class Contesting(Policy):
    """Has somebody displaced, so that every hook is called."""

    def rank(self, req: RequestView, view: View) -> float:
        return req.priority

    def on_misfit(self, req: RequestView, why: Misfit, view: View) -> Verdict:
        return Verdict.PREEMPT


def broken(base: type, hook: str, method: Callable[..., Any]) -> Any:
    """A plugin of that kind, named Broken, with one hook replaced."""
    method.__code__ = method.__code__.replace(co_qualname=f"Broken.{hook}")  # as if it were written in the class
    parent = Contesting if base is Policy else base
    caps = (2, 512) if base is Batching else ()
    return dataclass(type("Broken", (parent,), {hook: method}))(*caps)


def blamed(message: str) -> Any:
    """Expects that the run fails with just this message."""
    return pytest.raises(PluginError, match=f"^{re.escape(message)}$")


def crowd(run, arrive, plugin, base):
    """Serve requests that need more slots and more KV than there are."""
    plugins = {"policy": Contesting(), "batching": Batching(2, 512), "preemption": LowestRank()} | {GROUPS[base]: plugin}
    arrivals = arrive([6, 6, 6, 2], prompts=3, times=[0.0, 0.0, 1.0, 9.0], priorities=[2, 1, 1, 0])
    return run(arrivals, blocks=14, size=1, **plugins)


@pytest.mark.parametrize(("base", "hook"), EVERY_HOOK)
def test_a_hook_that_raises_fails_the_run_with_its_name_and_the_plugins(run, arrive, base, hook):
    def fail(self, *args):
        raise ZeroDivisionError("on purpose")

    with blamed(f"Broken: {hook} raised ZeroDivisionError: on purpose"):
        crowd(run, arrive, broken(base, hook, fail), base)


@dataclass
class Delegating(Policy):
    """Fails in a helper that a generator of its hook calls."""

    def order(self, waiting, view):
        return (self.helper(req) for req in waiting)

    def helper(self, req):
        raise ValueError(f"not {req.id}")


def test_an_error_in_a_helper_or_a_generator_is_blamed_on_the_hook(run, arrive):
    with blamed("Delegating: order raised ValueError: not 0"):
        crowd(run, arrive, Delegating(), Policy)


def test_an_error_in_a_rank_is_blamed_on_the_policy_that_ranks_not_on_who_asks(run, arrive):
    plugin = broken(Policy, "rank", lambda self, req, view: 1 / 0)
    plugin.on_misfit = lambda req, why, view: Verdict.STOP  # so that only victims() asks
    with blamed("Broken: rank raised ZeroDivisionError: division by zero"):
        run(arrive([9, 9], prompts=3), blocks=12, size=1, policy=plugin, preemption=LowestRank())


WRONG = [
    (Policy, "order", None, "order answered None: must be Iterable"),
    (Policy, "order", [None], "order named it twice, or it is not waiting"),
    (Policy, "order", [17], "request 17: order named it twice, or it is not waiting"),
    (Policy, "order_running", None, "order_running answered None: must be Iterable"),
    (Policy, "order_running", [17], "request 17: order_running named it twice, or it was not offered"),
    (Policy, "on_misfit", None, "on_misfit answered None: must be Verdict"),
    (Policy, "key", math.nan, "request 0: key is nan, which has no place in an order"),
    (Policy, "key", (1.0, math.nan), "request 0: key is (1.0, nan), which has no place in an order"),
    (Policy, "lane", [], "request 0: lane [] and key 0.0: unhashable type: 'list'"),
    (Batching, "gate", None, "gate answered None: must be Open or Closed"),
    (Batching, "budget", 4, "budget answered 4: must be StepBudget"),
    (Batching, "quota", None, "request 0: quota answered None: must be a whole number"),
    (Admission, "admit", None, "request 0: admit answered None at time 0.0"),
    (Admission, "admit", Hold(0.0), "request 0: admit answered Hold(until=0.0) at time 0.0"),
    (Admission, "reserve", 2.5, "request 0: reserve answered 2.5: must be a whole number"),
    (Preemption, "victims", None, "victims answered None: must be Iterable"),
    (Preemption, "victims", [3], "victims answered 3: must be Evict"),
    (Predictor, "predict", 12.5, "request 0: predict answered 12.5: must be a whole number"),
]


@pytest.mark.parametrize(("base", "hook", "answer", "message"), WRONG)
def test_a_wrong_answer_fails_the_run_with_the_plugins_name(run, arrive, base, hook, answer, message):
    with blamed(f"Broken: {message}"):
        crowd(run, arrive, broken(base, hook, lambda self, *args: answer), base)


def test_keys_that_cannot_be_compared_are_an_error_of_the_policy(run, arrive):
    plugin = broken(Policy, "key", lambda self, req: (1.0,) if req.id else 1.0)
    with blamed("Broken: request 1: lane None and key (1.0,): '<' not supported between instances of 'tuple' and 'float'"):
        crowd(run, arrive, plugin, Policy)


def test_a_request_named_twice_or_not_offered_is_an_error_that_names_it(bench):
    def twice(self, waiting, view):
        return [waiting.head(), waiting.head()]

    desk = bench(policy=broken(Policy, "order", twice))
    desk.submit()
    with blamed("Broken: request 0: order named it twice, or it is not waiting"):
        desk.plan()

    desk = bench(policy=broken(Policy, "order_running", lambda self, running, view: view.waiting if running else []))
    desk.submit()
    desk.step()
    desk.submit()
    with blamed("Broken: request 1: order_running named it twice, or it was not offered"):
        desk.plan()

    def victims(self, need, requester, candidates, view):
        return [Evict(candidates[-1]), Evict(candidates[-1])]

    desk = bench(blocks=5, size=4, policy=Contesting(), preemption=broken(Preemption, "victims", victims))
    desk.submit(5, 3, priority=1)
    desk.submit(5, 3, priority=1)
    desk.step()
    desk.submit(16, 1)  # needs both of them gone
    with blamed("Broken: request 1: victims named it twice, or it was not offered"):
        desk.step()


STUCK = [
    (Policy, "order", lambda self, waiting, view: []),
    (Batching, "gate", lambda self, view: Closed()),
    (Batching, "gate", lambda self, view: Open(min_new=5)),
    (Batching, "gate", lambda self, view: Open(max_new=0)),
    (Batching, "budget", lambda self, view: StepBudget(0)),
    (Batching, "budget", lambda self, view: StepBudget(4, 0)),
    (Batching, "budget", lambda self, view: StepBudget(4, -3)),
    (Batching, "quota", lambda self, req, left, view: 0),
    (Batching, "quota", lambda self, req, left, view: -7),
    (Admission, "reserve", lambda self, req, view: None),
    (Admission, "admit", lambda self, req, view: Hold(math.inf)),
]


@pytest.mark.parametrize(("base", "hook", "method"), STUCK)
def test_a_deadlock_is_an_error_of_the_plugin_that_made_it_and_not_a_hang(run, arrive, base, hook, method):
    with blamed("Broken: request 0: nothing runs, and nothing would wake it"):
        run(arrive([4, 4], prompts=3), **{GROUPS[base]: broken(base, hook, method)})


def test_a_deadlock_over_kv_names_the_preemption(run, arrive):
    nobody = broken(Preemption, "victims", lambda self, need, requester, candidates, view: [])
    with blamed("Broken: request 0: nothing runs, and nothing would wake it"):
        run(arrive([4, 4], prompts=3), blocks=8, size=1, preemption=nobody)


@pytest.mark.parametrize("wake_at", [0.0, -1.0])
def test_a_gate_that_wakes_in_the_past_is_an_error_and_not_a_hang(run, arrive, wake_at):
    gate = broken(Batching, "gate", lambda self, view: Closed(wake_at))
    with blamed(f"Broken: gate is closed until {wake_at}, and it is 0.0 already"):
        run(arrive([4]), batching=gate)


@pytest.mark.parametrize("wake_at", [math.nan, "soon", None])
def test_a_gate_that_answers_no_time_is_named(run, arrive, wake_at):
    gate = broken(Batching, "gate", lambda self, view: Closed(wake_at))
    with blamed(f"Broken: gate answered {wake_at!r}: must be a time"):
        run(arrive([4]), batching=gate)


@pytest.mark.parametrize("until", [math.nan, "soon", None])
def test_a_hold_that_names_no_time_is_named(run, arrive, until):
    admission = broken(Admission, "admit", lambda self, req, view: Hold(until))
    with blamed(f"Broken: admit answered {until!r}: must be a time"):
        run(arrive([4]), admission=admission)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (None, "None: must be Quiet"),
        (Quiet(steps=2.5), "2.5: must be a whole number"),
        (Quiet(until=math.nan), "nan: must be a time"),
    ],
)
def test_a_quiet_that_is_none_is_named(run, arrive, answer, fault):
    with blamed(f"Broken: quiet answered {fault}"):
        run(arrive([4]), batching=broken(Batching, "quiet", lambda self, view: answer))


@pytest.mark.parametrize(("answer", "number"), [(StepBudget("4"), "'4'"), (StepBudget(4, 2.5), "2.5")])
def test_a_budget_in_other_than_whole_numbers_is_named(run, arrive, answer, number):
    with blamed(f"Broken: budget answered {number}: must be a whole number"):
        run(arrive([4]), batching=broken(Batching, "budget", lambda self, view: answer))


def test_endless_rests_end_in_an_error(run, arrive):
    admission = broken(Admission, "admit", lambda self, req, view: Hold(view.now + 1e-9))
    with blamed("Broken: request 0: 51 steps and rests computed nothing new"):
        run(arrive([4]), admission=admission, patience=50)


def test_a_rank_that_cannot_be_compared_is_named(run, arrive):
    contest = broken(Policy, "on_misfit", lambda self, req, why, view: Verdict.PREEMPT)
    contest.rank = lambda req, view: None
    with blamed("Broken: request 1: rank answered None: '>' not supported between instances of 'NoneType' and 'NoneType'"):
        run(arrive([4, 4]), policy=contest, batching=Batching(1))


def test_steps_that_only_repeat_work_end_in_an_error(run, arrive):
    """Two requests displace each other before either has computed its prompt: the policy's doing."""
    flip = broken(Policy, "rank", lambda self, req, view: (req.seq + view.step) % 2)
    sips = broken(Batching, "quota", lambda self, req, left, view: 1)
    sips.max_num_seqs = 1
    with pytest.raises(PluginError, match=r"^Broken: request [01]: 51 steps and rests computed nothing new"):
        run(arrive([2, 2], prompts=4), policy=flip, batching=sips, patience=50)


def test_a_request_that_can_never_fit_is_rejected_at_once_with_a_reason(bench):
    desk = bench(blocks=8, max_context=12)
    assert desk.submit(6, 3).status is Status.WAITING, "the last token is never written to the cache"
    assert (desk.submit(6, 4).status, desk.submit(6, 4).reason) == (Status.REJECTED, "needs 9 KV blocks of 8")
    assert desk.submit(9, 5).reason == "prompt 9 + max_tokens 5 exceed the context of 12"
    assert desk.submit(20, 1).reason == "prompt 20 + max_tokens 1 exceed the context of 12"
    assert [req.status for req in desk.scheduler.departed()] == [Status.REJECTED] * 4


def test_caps_hold_against_a_greedy_batching(run, arrive):
    greedy = broken(Batching, "budget", lambda self, view: StepBudget(1000, 10**6))
    served = run(arrive([3] * 9, prompts=200), batching=greedy, blocks=1000)
    assert max(map(len, served.plans)) == 2
    assert max(sum(plan.values()) for plan in served.plans) == 400


def test_predictions_are_clamped_to_what_is_possible(bench):
    for answer, taken in ((-3, 1), (0, 1), (5, 5), (99, 8)):
        desk = bench(predictor=broken(Predictor, "predict", lambda self, req, truth, answer=answer: answer))
        assert desk.submit(1, 8).predicted_output == taken


def test_only_an_oracle_is_given_the_truth(run, arrive):
    seen = []

    @dataclass
    class Curious(Predictor):
        def predict(self, req, truth):
            seen.append(truth)
            return req.max_tokens

    @dataclass
    class Oracle(Curious):
        oracle = True

    run(arrive([3, 5], max_tokens=9), predictor=Curious())
    run(arrive([3, 5], max_tokens=9), predictor=Oracle())
    assert seen == [None, None, 3, 5]


def reachable(*roots: Any) -> list[Any]:
    """Everything that can be reached through attributes, items and closures; not through modules and classes."""
    queue, seen = list(roots), dict[int, Any]()
    while queue:
        thing = queue.pop()
        if id(thing) in seen or isinstance(thing, type | str):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, dict):
            queue += [*thing.keys(), *thing.values()]
        elif isinstance(thing, list | tuple | set):
            queue += thing
        else:
            slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
            queue += [getattr(thing, name, None) for name in (*slots, "__self__")]
            queue += getattr(thing, "__dict__", {}).values()
            queue += [cell.cell_contents for cell in getattr(thing, "__closure__", None) or ()]
    return list(seen.values())


def test_the_true_length_is_in_no_object_that_a_plugin_can_reach(run, arrive):
    truth, found = 4321, list[Any]()

    def gate(self, view):
        found.extend(reachable(self, view, *view.waiting))
        return Open()

    run(arrive([truth], prompts=7, max_tokens=5000), blocks=1000, batching=broken(Batching, "gate", gate))
    assert 7 in found, "the search does not even find the prompt"
    assert 5000 in found
    assert truth not in found
