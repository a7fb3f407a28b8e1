"""All that a plugin is written against; `slotlab` offers these names as its own."""

from slotlab.decisions import (
    FOREVER,
    ONE_STEP,
    Accept,
    Closed,
    Evict,
    Hold,
    Misfit,
    Mode,
    Need,
    Open,
    Phase,
    Quiet,
    Reject,
    StepBudget,
    Verdict,
)
from slotlab.engine import Done, Engine, Handle, Model
from slotlab.errors import PluginError, UserError, require
from slotlab.hooks import hookimpl
from slotlab.kinds import Admission, Batching, Modifier, Policy, Predictor, Preemption, Served
from slotlab.plan import Plan, Result
from slotlab.request import Request, RequestState, RequestView, Status
from slotlab.streams import Streams
from slotlab.view import View
from slotlab.waiting import Key, Waiting
from slotlab.workload import Arrival, Load, Point, Tenant, Workload

__all__ = [
    "FOREVER",
    "ONE_STEP",
    "Accept",
    "Admission",
    "Arrival",
    "Batching",
    "Closed",
    "Done",
    "Engine",
    "Evict",
    "Handle",
    "Hold",
    "Key",
    "Load",
    "Misfit",
    "Mode",
    "Model",
    "Modifier",
    "Need",
    "Open",
    "Phase",
    "Plan",
    "PluginError",
    "Point",
    "Policy",
    "Predictor",
    "Preemption",
    "Quiet",
    "Reject",
    "Request",
    "RequestState",
    "RequestView",
    "Result",
    "Served",
    "Status",
    "StepBudget",
    "Streams",
    "Tenant",
    "UserError",
    "Verdict",
    "View",
    "Waiting",
    "Workload",
    "hookimpl",
    "require",
]
