"""The check of predictors."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from slotlab.errors import told
from slotlab.kinds import Predictor
from slotlab.request import RequestState, Status
from slotlab.sources import request
from slotlab.testing.draw import asks
from slotlab.testing.explore import explore
from slotlab.testing.faults import Nonconformance
from slotlab.testing.fresh import fresh, require_offer, title
from slotlab.testing.frozen import difference, state
from slotlab.testing.replay import same_under_hash_seeds
from slotlab.testing.rules import scramble
from slotlab.testing.scenario import Ask, without_one

REPLAYED = 40


def check_predictor(predictor: Any, *, examples: int | None = None) -> None:
    """Fail with a Nonconformance unless `predictor`, a class or a preset, keeps the contract.

    An estimate is a whole number that depends on the request, on those that have finished, and for an oracle on the truth.
    """
    require_offer(predictor, Predictor)
    seen = explore(title(predictor), asks(12), lambda some: examine(predictor, some), examples, without_one)
    same_under_hash_seeds({"predictor": predictor}, "slotlab.testing.predictors:replayed", seen[-REPLAYED:])


def examine(predictor: Any, some: tuple[Ask, ...]) -> None:
    """Two predictors with the same past must estimate the same."""
    try:
        first = estimates(predictor, some)
        scramble(1)
        second = estimates(predictor, some)
    except Nonconformance as fault:
        raise fault.at(described(some)) from None
    except Exception as error:
        raise Nonconformance(title(predictor), "no errors", told(error), described(some)) from error
    for id, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            what = f"the estimate for request {id} is {one}, and {other} for another predictor with the same past"
            raise Nonconformance(title(predictor), "determinism", what, described(some))


def described(some: tuple[Ask, ...]) -> str:
    """The requests, each of which finishes before the next but one comes."""
    return f"requests [{'; '.join(map(str, some))}]"


def estimates(predictor: Any, some: tuple[Ask, ...]) -> list[int]:
    """For each request in turn; each finishes when the next has been estimated, so that there is something to learn from."""
    new, answers, running = fresh(predictor), list[int](), list[tuple[RequestState, Ask]]()
    for id, ask in enumerate(some):
        req, truth = request(id, ask.time, ask.arrival), ask.output if new.oracle else None
        before = state(new)
        answer, again = new.predict(req, truth), new.predict(req, truth)
        try:
            answers.append(index(answer))
        except TypeError:
            raise Nonconformance(title(predictor), "whole numbers", f"predict answered {answer!r}") from None
        if answer != again:
            raise Nonconformance(title(predictor), "pure", f"predict answered {answer}, and asked again {again}")
        if changed := difference(before, state(new)):
            raise Nonconformance(title(predictor), "pure", f"predict changed the predictor's {changed}; only `finished` may")
        running.append((RequestState.of(req, id, max(1, min(answer, req.max_tokens)), ask.time), ask))
        if len(running) > 1:
            finish(new, *running.pop(0))
    return answers


def finish(predictor: Any, req: RequestState, ask: Ask) -> None:
    """Tell of the end of `req`."""
    req.status, req.emitted = Status.FINISHED, ask.output
    predictor.finished(req)
    if (req.emitted, req.status, req.prompt_tokens) != (ask.output, Status.FINISHED, ask.prompt):
        raise Nonconformance(title(predictor), "read only", f"finished wrote to request {req.id}")


def replayed(plugins: Mapping[str, Any], some: tuple[Ask, ...]) -> object:
    """The estimates, for a replay in another process."""
    return estimates(plugins["predictor"], some)
