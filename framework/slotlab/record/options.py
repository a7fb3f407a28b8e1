"""What is written down beside requests and steps."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab.errors import require


@dataclass
class Record:
    """The node `record` of the configuration.

    slots: who held which slot in which step (`slots.parquet`): `true`, `false`, or `auto` for small runs only.
    decisions: who got no token in which step, and why (`decisions.parquet`).
    oracle: the bounds beside the curve, on a virtual clock: `true`, `false`, or `auto` for small runs only.
    """

    slots: str = "auto"
    decisions: bool = False
    oracle: str = "auto"

    def __post_init__(self) -> None:
        for name in ("slots", "oracle"):
            value = str(getattr(self, name)).lower()  # Hydra hands over the word `true` as True
            require(value in ("auto", "true", "false"), name, value, "auto, true or false")
            setattr(self, name, value)

    def wants(self, name: str, size: int, most: int) -> bool:
        """Whether an option is on; where it is `auto`, whether `size` is at most `most`."""
        value = getattr(self, name)
        return size <= most if value == "auto" else value == "true"
