"""Texts in figures as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import rc_context


@contextmanager
def literal() -> Iterator[None]:
    """While it lasts, `$` in a text begins no formula, and what the font lacks is a box and no warning."""
    with rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield
