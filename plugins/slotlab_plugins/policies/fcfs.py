"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Policy


@dataclass
class FCFS(Policy):
    """First come, first served."""


CHOICES = {"fcfs": FCFS}
