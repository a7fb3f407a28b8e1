"""docs/metrics.md says what the code does."""

import importlib.util
import sys
from pathlib import Path

import pytest

from slotlab.record.definitions import METRICS, as_markdown

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_metrics", DOCS / "make_metrics.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_current(maker):
    assert (DOCS / "metrics.md").read_text() == maker.page(), "run .venv/bin/python docs/make_metrics.py"


def test_every_metric_is_on_the_page_once():
    rows = [line.split("|")[1].strip(" `") for line in as_markdown().splitlines() if line.startswith("| `")]
    assert rows == list(METRICS) and len(set(rows)) == len(rows)


def test_one_record_means_five_things(maker):
    """Worked by hand from the record in the page."""
    found = {name: tool() for name, tool in maker.TOOLS.items()}
    assert [found[tool]["ttft mean"] for tool in ("slotlab", "vLLM")] == pytest.approx([(1 + 0.7 + 1.5 + 0.5) / 4, 2.7 / 4])
    assert found["slotlab"]["tpot mean"] == pytest.approx((0.1 + 0.575 + 0.4) / 3)
    assert found["GuideLLM"]["tpot mean"] == pytest.approx((1.4 / 5 + 0.7 + 2.8 / 5 + 0.9 / 2) / 4)
    assert found["slotlab"]["itl mean"] == pytest.approx(3.1 / 9) and found["aiperf"]["itl mean"] == pytest.approx(1.075 / 3)
    assert (found["GuideLLM"]["e2e p50"], found["vLLM"]["e2e p50"]) == pytest.approx((0.9, 1.15))
    assert [found[tool]["goodput/s"] for tool in ("slotlab", "vLLM", "aiperf")] == pytest.approx([3 / 4.8, 4 / 4.8, 4 / 4.8])
    assert [found[tool]["tokens/s"] for tool in ("slotlab", "vLLM")] == pytest.approx([16 / 4.8, 13 / 4.8])
