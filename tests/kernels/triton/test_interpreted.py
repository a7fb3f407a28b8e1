"""Every Triton kernel in Triton's interpreter; the cases are in the files beside, where their names are explained."""

from __future__ import annotations

import json
from collections.abc import Callable

import attention_cases  # noqa: F401
import pytest
import row_cases  # noqa: F401
import runner_cases  # noqa: F401
import sampling_cases  # noqa: F401
from casebook import CASES


@pytest.fixture(scope="module")
def outcomes(script: Callable[..., str]) -> dict[str, str]:
    said = script("interpreted", TRITON_INTERPRET="1").splitlines()
    known = dict(json.loads(line) for line in said if line.startswith("["))
    rest = "\n".join(line for line in said if not line.startswith("["))
    return {name: known.get(name, f"not run: {rest}") for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: dict[str, str], name: str) -> None:
    assert not outcomes[name], outcomes[name]
