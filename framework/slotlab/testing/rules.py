"""The rules that every scheduling plugin is held to, in one scenario."""

from __future__ import annotations

import random
from collections import Counter

from slotlab.request import Request, RequestState, Status
from slotlab.testing.cast import Subject
from slotlab.testing.executor import Executor
from slotlab.testing.faults import Nonconformance
from slotlab.testing.frozen import atoms, difference, state
from slotlab.testing.scenario import Ask, Scenario
from slotlab.testing.trial import Trial
from slotlab.testing.watched import Claims, WatchedTrial

POLICIES = ("policy", "modifier")
FOLLOWS = {  # which events may come after which
    "": ("arrived", "left"),
    "arrived": ("started", "left"),
    "started": ("preempted", "left"),
    "preempted": ("started", "left"),
    "left": (),
}


def examine(subject: Subject, claims: Claims, scenario: Scenario) -> None:
    """Serve `scenario` watched, then in single steps. Nonconformance: a rule is broken. UserError: a plugin declines it."""
    watched = WatchedTrial(subject, claims, scenario)
    watched.serve()
    ends(watched)
    accounts(watched)
    if claims.max_bypass is not None:
        bypass(watched, claims.max_bypass)
    single = run(subject, scenario, jump=False, turn=1)
    kept = [state(subject.among(trial.plugins)) for trial in (single, watched)] if subject.kind in POLICIES else [{}, {}]
    changed = difference(*kept)
    if changed or watched.outcome() != single.outcome():
        for turn in range(2, 5):  # a plugin that answers by chance may do so alike once
            repeats(subject, watched, run(subject, scenario, jump=True, turn=turn))
            repeats(subject, single, run(subject, scenario, jump=False, turn=turn))
        if watched.outcome() == single.outcome():
            raise watched.fault("jumps", f"`served` of several steps is not that of each: {changed}")
        raise watched.fault("jumps", f"{first_difference(watched, single)}: `quiet` promises too much")


def run(subject: Subject, scenario: Scenario, jump: bool, turn: int) -> Trial:
    """Serve `scenario` unwatched, with requests at other addresses in each turn."""
    scramble(turn)
    engine = Executor(block_size=scenario.size, num_blocks=scenario.blocks, jump=jump)
    return Trial(subject.name, scenario, subject.cast(scenario), engine).serve()


def scramble(turn: int) -> None:
    """Leave the heap so that the next requests lie at other addresses, in another order: `id` and `hash` of them change."""
    states = [RequestState.of(Request(i, 0.0, 1, 1), i, 1, 0.0) for i in range(64)]
    random.Random(turn).shuffle(states)
    while states:
        states.pop()


def repeats(subject: Subject, first: Trial, second: Trial) -> None:
    """Fail unless two runs of a scenario came to the same decisions."""
    for one, other in zip(first.decisions, second.decisions, strict=False):
        if one != other:
            what = f"at {one[0]:g} the plan is {dict(one[1])}, and when the scenario is repeated {dict(other[1])} at {other[0]:g}"
            raise first.fault("determinism", what)
    if len(first.decisions) != len(second.decisions):
        raise first.fault("determinism", f"{len(first.decisions)} plans, and {len(second.decisions)} when it is repeated")
    if changed := difference(*(state(subject.among(trial.plugins)) for trial in (first, second))):
        raise first.fault("determinism", f"when the scenario is repeated, {changed}")


def first_difference(jumped: Trial, single: Trial) -> str:
    """What is otherwise after a jump."""
    for req, one, other in zip(jumped.states, jumped.outcome(), single.outcome(), strict=True):
        names = ["status", "its start", "its preemptions", "its recomputed tokens", *(f"token {i}" for i in range(1, 10_000))]
        for name, a, b in zip(names, one, other, strict=False):
            if a != b:
                return f"{name} of request {req.id} is {a} with jumps and {b} in single steps"
        if len(one) != len(other):
            return f"request {req.id} emits {len(one) - 4} tokens with jumps and {len(other) - 4} in single steps"
    return "nothing differs"


def ends(trial: Trial) -> None:
    """Every request has ended, by one of three ways, and nobody was sent back without end."""
    counts = Counter(req.status for req in trial.states)
    ended = counts[Status.FINISHED] + counts[Status.REJECTED] + counts[Status.ABORTED]
    if ended != len(trial.scenario.asks):
        raise trial.fault("liveness", f"of {len(trial.scenario.asks)} requests {ended} have ended")
    bound = trial.scenario.load + len(trial.states)  # somebody has got a new token for each of them
    for req in trial.states:
        if req.preemptions > bound:
            raise trial.fault("liveness", f"request {req.id} was preempted {req.preemptions} times")
        if req.status is Status.FINISHED and len(trial.times[req.id]) != trial.scenario.asks[req.id].output:
            raise trial.fault("invariants", f"request {req.id} emitted {len(trial.times[req.id])} tokens")


def bypass(trial: Trial, most: int) -> None:
    """Nobody saw more than `most` later arrivals start before it."""
    place = {seq: i for i, seq in enumerate(trial.first_starts)}
    for req in trial.states:
        if req.status is Status.FINISHED:
            passed = sum(1 for seq in trial.first_starts[: place[req.seq]] if seq > req.seq)
            if passed > most:
                raise trial.fault("bounded bypass", f"{passed} later arrivals start before request {req.id}; claimed: {most}")


def accounts(trial: WatchedTrial) -> None:
    """What the policy was told adds up to what was done; what a modifier is told reaches the policy that it wraps."""
    outer, *inside = trial.policies
    for watch in inside:
        hears = {entry[0] for entry in watch.log} | {"arrived", "started", "preempted", "left"}
        if watch.log != [entry for entry in outer.log if entry[0] in hears]:
            missed = next((entry for entry in outer.log if entry not in watch.log), outer.log[0])
            raise trial.fault("accounts", f"it keeps {missed[0]} of request {missed[1]} from the policy that it wraps")
    phase: dict[int, str] = {}
    output, prompt = Counter[int](), Counter[int]()
    for event, *args in outer.log:
        if event == "served":
            for id, fresh, out in args[0]:
                prompt[id] += fresh
                output[id] += out
        elif event not in FOLLOWS[before := phase.get(args[0], "")]:
            raise trial.fault("accounts", f"it was told that request {args[0]} {event} after {before or 'nothing'}")
        else:
            phase[args[0]] = event
    if unseen := [req.id for req in trial.states if phase[req.id] != "left"]:
        raise trial.fault("accounts", f"it was not told that request {unseen[0]} left")
    if output and (output != Counter({req.id: req.emitted for req in trial.states}) or prompt != trial.fresh):
        raise trial.fault("accounts", "the tokens that it was told are not those served")


def forgets(subject: Subject) -> None:
    """What a policy keeps does not grow with the number of requests that have left.

    Of these some are aborted, some are refused because they can never fit, and some are preempted.
    """
    sizes = []
    for rounds in (4, 12):
        asks = tuple(
            Ask(2.0 * i, 99 if i % 3 == 2 else 3 + i % 5, 2 + i % 9, 0, "abc"[i % 3], i % 4, aborted=3.0 if i % 4 == 3 else None)
            for i in range(10 * rounds)
        )
        scenario = Scenario(asks, slots=3, tokens=32, blocks=20, size=1)
        trial = Trial(subject.name, scenario, subject.cast(scenario)).serve()
        sizes.append(state(subject.among(trial.plugins)))
    for name, value in sizes[1].items():
        if atoms(value) >= atoms(sizes[0].get(name)) + 20:
            what = f"{name} grew from {atoms(sizes[0].get(name))} to {atoms(value)} values while 80 requests came and left"
            raise Nonconformance(subject.name, "forgetting", what)
