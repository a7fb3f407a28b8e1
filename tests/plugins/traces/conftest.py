"""Small trace files, and the public ones where they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from slotlab import Arrival, Streams, Workload

HERE = Path(__file__).parents[3]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a file with the given lines; its path."""

    def make(*lines: str, name: str = "trace.csv") -> str:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return make


@pytest.fixture
def public() -> Callable[[str], str]:
    """The path of a public trace; skips the test where it is not."""

    def find(name: str) -> str:
        folder = Path(os.environ.get("SLOTLAB_TRACES") or HERE.parent / "shared" / "traces")
        if not (folder / name).is_file():
            pytest.skip(f"no {name} in {folder}: set SLOTLAB_TRACES to a folder with the public traces")
        return str(folder / name)

    return find


def drawn(workload: Workload, seed: int = 0, repeat: int = 0) -> list[Arrival]:
    """All arrivals of a workload."""
    return list(workload.draw(Streams(seed, repeat)))


@pytest.fixture
def draw() -> Callable[..., list[Arrival]]:
    """All arrivals of a workload."""
    return drawn
