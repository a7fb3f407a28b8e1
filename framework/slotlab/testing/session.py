"""What a test session sets and collects. Imports nothing: pytest loads it in every session."""

from __future__ import annotations

from dataclasses import dataclass, field

EXAMPLES = 200  # scenarios per check, by default
SIZES = (100, 1_000, 10_000, 100_000)  # waiting requests at which a step is timed


@dataclass
class Cost:
    """What one step costs beside a long queue."""

    plugin: str
    calls: int  # of Python functions at 10,000 waiting
    microseconds: dict[int, float]  # median of a step, by waiting requests


@dataclass
class Session:
    """Of this process."""

    examples: int = EXAMPLES
    costs: list[Cost] = field(default_factory=list)


SESSION = Session()
