"""Recorded workloads: public traces, files of lengths, and our own runs."""

from slotlab_plugins.workloads.traces.azure import Azure
from slotlab_plugins.workloads.traces.bailian import Bailian
from slotlab_plugins.workloads.traces.burstgpt import BurstGPT
from slotlab_plugins.workloads.traces.lengths import Lengths, Vidur
from slotlab_plugins.workloads.traces.mooncake import Mooncake
from slotlab_plugins.workloads.traces.rerun import Rerun
from slotlab_plugins.workloads.traces.servegen import ServeGen

CHOICES = {
    "azure": Azure,
    "bailian": Bailian,
    "burstgpt": BurstGPT,
    "lengths": Lengths,
    "mooncake": Mooncake,
    "rerun": Rerun,
    "servegen": ServeGen,
    "vidur": Vidur,
}
