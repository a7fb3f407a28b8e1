"""docs/reference/ says what the code says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

import slotlab
from slotlab.lab.plugins import GROUPS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_pages_are_current(maker):
    found = {path.name: path.read_text() for path in (DOCS / "reference").iterdir()}
    assert found == maker.files(), "run .venv/bin/python docs/make_reference.py"


def test_every_public_name_is_on_one_page(maker):
    names = [name for page in maker.PAGES.values() for name in page.names]
    assert sorted(names) == sorted([*slotlab.__all__, "Bench"])


def test_every_group_has_a_page_of_its_name(maker):
    groups = {group for group, _ in GROUPS.values()}
    assert {name for name, page in maker.PAGES.items() if page.group} == groups
    assert all(page.group in (None, name) for name, page in maker.PAGES.items())
