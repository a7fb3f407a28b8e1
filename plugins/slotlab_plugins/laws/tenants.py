"""Who sends what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slotlab import Tenant, UserError, require
from slotlab_plugins.laws.arrivals import Arrivals
from slotlab_plugins.laws.lengths import Lengths


@dataclass
class TenantTraffic(Tenant):
    """A tenant; what is null is the workload's: `arrivals` of its own at its `share` of the rate, and lengths of its own.

    `deadline`: seconds after the arrival, for the first token.
    """

    arrivals: Arrivals | None = None
    prompt: Lengths | None = None
    output: Lengths | None = None
    deadline: float | None = None


def check_tenants(tenants: Sequence[TenantTraffic]) -> None:
    """Refuse tenants that cannot share traffic."""
    names = [tenant.name for tenant in tenants]
    if not names or len(set(names)) < len(names):
        raise UserError(f"tenants={names}: must be one or more, with names of their own")
    for tenant in tenants:
        place = f"tenants[{tenant.name}]"
        require(0 < tenant.share < math.inf, f"{place}.share", tenant.share, "greater than 0")
        require(0 < tenant.weight < math.inf, f"{place}.weight", tenant.weight, "greater than 0")
        require(tenant.deadline is None or tenant.deadline > 0, f"{place}.deadline", tenant.deadline, "greater than 0")
