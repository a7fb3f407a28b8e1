"""Who sends what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotlab import Tenant, UserError, require
from slotlab.limits import LATEST, PRIORITIES
from slotlab_plugins.laws.arrivals import Arrivals
from slotlab_plugins.laws.lengths import Lengths

MOST_SHARE = 1e9  # and the most that a tenant may weigh


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
        check_tenant(tenant)
        due = tenant.deadline
        require(
            due is None or 0 < due <= LATEST, f"tenants[{tenant.name}].deadline", due, f"greater than 0 and at most {LATEST:g}"
        )


def check_tenant(tenant: Tenant) -> None:
    """Refuse a tenant of which policies can make nothing."""
    place = f"tenants[{tenant.name}]"
    for name, value in (("share", tenant.share), ("weight", tenant.weight)):
        require(0 < value <= MOST_SHARE, f"{place}.{name}", value, f"greater than 0 and at most {MOST_SHARE:g}")
    low, high = PRIORITIES
    require(low <= tenant.priority <= high, f"{place}.priority", tenant.priority, f"from {low} to {high}")
