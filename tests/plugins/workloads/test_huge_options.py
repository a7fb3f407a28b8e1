"""Finite values that nobody means are refused where they are given, with the allowed range, or drawn: no hang, no huge array."""

from __future__ import annotations

from dataclasses import fields
from itertools import product

import pytest

from slotlab import Streams, UserError
from slotlab.arrivals import check_arrivals
from slotlab_plugins.laws.arrivals import PROFILES, Arrivals, Stage
from slotlab_plugins.laws.lengths import LAWS, Lengths
from slotlab_plugins.laws.links import Prefixes, Sessions
from slotlab_plugins.laws.tenants import TenantTraffic
from slotlab_plugins.workloads.explicit import Explicit
from slotlab_plugins.workloads.synthetic import Synthetic

WHOLE, REAL = (10**25, 2**63, 2**31, -(10**25)), (1e300, 1e30, 1e-300, -1e30)


def values(kind, name):
    return WHOLE if {f.name: f.type for f in fields(kind)}[name] in ("int", "int | None") else REAL


def cases():
    """Each part of a workload with one huge option, and what makes a workload of it."""
    for law, name in product(LAWS, ("mean", "sigma", "low", "high", "exponent", "shift", "shift_at")):
        yield Lengths, {"law": law, "quantiles": [1.0, 9.0]}, name, lambda part: Synthetic(prompt=part)
    for profile, name in product(PROFILES, ("cv", "period", "duty", "swing")):
        yield Arrivals, {"profile": profile, "stages": [Stage()]}, name, lambda part: Synthetic(arrivals=part)
    for name in ("duration", "rate"):
        yield Stage, {}, name, lambda part: Synthetic(arrivals=Arrivals(profile="stages", stages=[Stage(), part]))
    for name in ("groups", "exponent"):
        yield Prefixes, {"groups": 3}, name, lambda part: Synthetic(prefixes=part)
    for name in ("turns", "think"):
        yield Sessions, {"turns": 3.0}, name, lambda part: Synthetic(sessions=part)
    for name in ("share", "weight", "priority", "deadline"):
        yield TenantTraffic, {}, name, lambda part: Synthetic(tenants=[part, TenantTraffic("b")])
    for name in ("requests", "max_tokens"):
        yield Synthetic, {}, name, lambda part: part


@pytest.mark.parametrize(
    ("kind", "options", "name", "make"), list(cases()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_huge_option_is_refused_with_its_range_or_served(kind, options, name, make):
    for value in values(kind, name):
        try:
            workload = make(kind(**{**options, name: value}))
        except UserError as error:
            assert ": must be " in str(error) and any(digit in str(error).partition(": must be ")[2] for digit in "0123456789")
        else:
            check_arrivals(workload, list(workload.draw(Streams(0))))


@pytest.mark.parametrize("name", ["lengths", "prompts", "priorities", "arrivals"])
@pytest.mark.parametrize("value", [10**25, 2**31, -(10**25), 1e300])
def test_a_huge_value_of_a_request_written_down_is_refused(name, value):
    with pytest.raises(UserError, match=rf"^{name}=.*: must be at least .* and at most "):
        Explicit(**{"lengths": [1], name: [value]})


def test_zipf_and_quantiles_refuse_what_they_cannot_list_or_draw():
    with pytest.raises(UserError, match=r"^high=5000000: must be at most 1000001$"):
        Lengths("zipf", high=5_000_000)
    with pytest.raises(UserError, match=r"^low=2000000000: must be from 1 to high=512$"):
        Lengths("zipf", low=2 * 10**9)
    with pytest.raises(UserError, match=r"from 1 on, at most 1000000000$"):
        Lengths("quantiles", quantiles=[1.0, 1e30])
