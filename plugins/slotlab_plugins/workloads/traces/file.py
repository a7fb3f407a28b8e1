"""Rows of a trace file, one by one, by the names of their columns. What cannot be read is one line: file, row, reason."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TextIO

from slotlab import UserError
from slotlab.limits import MOST_TOKENS

Line = tuple[int, Sequence[Any]]  # number in the file, as an editor counts, and the values of the columns asked for

NUMBER = re.compile(r"[+-]?[0-9]+([.][0-9]*)?([eE][+-]?[0-9]+)?")  # Python's own float() reads 1_000, ٣ and nan too
MOST = 1e13  # of a time; in ms since 1970 that is the year 2286


@dataclass(frozen=True)
class TraceFile:
    """A file that is read lazily: what is in memory does not depend on its size."""

    path: Path

    def refuse(self, row: int, reason: str) -> UserError:
        """The error about one row; on one line, whatever stands in it."""
        return UserError(f"{self.path}: row {row}: {reason if reason.isprintable() else ascii(reason)[1:-1]}")

    @contextmanager
    def opened(self, newline: str | None = None) -> Iterator[TextIO]:
        """The file as text."""
        try:
            file = self.path.open(newline=newline, encoding="utf-8-sig")
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror})") from None
        with file:
            yield file

    def cells(self) -> Iterator[tuple[int, list[str]]]:
        """Rows of comma-separated cells, as text. An empty line is no row."""
        found = False
        with self.opened(newline="") as file:
            reader = csv.reader(file)
            try:
                for cells in reader:
                    if cells:
                        found = True
                        yield reader.line_num, cells
            except (UnicodeDecodeError, csv.Error) as error:
                raise self.refuse(reader.line_num + 1, f"is no text in columns ({error})") from None
        if not found:
            raise self.refuse(1, "the file is empty")

    def csv(self, columns: Sequence[str]) -> Iterator[Line]:
        """The values of two or more `columns`, as text. Other columns, and their order, do not matter."""
        lines = self.cells()
        header = [name.strip() for name in next(lines)[1]]
        pick = itemgetter(*self._places(header, columns))
        for row, cells in lines:
            if len(cells) != len(header):
                raise self.refuse(row, f"has {len(cells)} values for {len(header)} columns")
            yield row, pick(cells)

    def _places(self, header: Sequence[str], columns: Sequence[str]) -> list[int]:
        for name in columns:
            if header.count(name) != 1:
                found = "twice" if name in header else "missing"
                raise self.refuse(1, f"the column {name} is {found}; there is: {listed(header)}")
        return [header.index(name) for name in columns]

    def json_lines(self, columns: Sequence[str]) -> Iterator[Line]:
        """The values of `columns` of one JSON object per line."""
        number = 0
        with self.opened() as file:
            try:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield number, self._values(number, json.loads(line), columns)
            except (ValueError, RecursionError) as error:  # no JSON, or no UTF-8
                if isinstance(error, UserError):
                    raise
                raise self.refuse(max(number, 1), f"is no JSON ({error})") from None
        if not number:
            raise self.refuse(1, "the file is empty")

    def _values(self, row: int, item: object, columns: Sequence[str]) -> list[Any]:
        if not isinstance(item, dict):
            raise self.refuse(row, "is no JSON object")
        for name in columns:
            if name not in item:
                raise self.refuse(row, f"{name} is missing; there is: {listed(item)}")
        return [item[name] for name in columns]

    def count(self, row: int, name: str, value: Any, least: int = 0, most: int = MOST_TOKENS) -> int:
        """A value as a whole number from `least` to `most`; `12.0` is one."""
        number = read(value)
        if number is not None and least <= number <= most and (whole := int(number)) == number:
            return whole
        raise self.refuse(row, f"{name}={shown(value)}: must be a whole number, at least {least} and at most {most}")

    def number(self, row: int, name: str, value: Any) -> float:
        """A value as a number from 0 to `MOST`."""
        number = read(value)
        if number is not None and 0 <= number <= MOST:
            return float(number)
        raise self.refuse(row, f"{name}={shown(value)}: must be a number, at least 0 and at most {MOST:g}")


def read(value: Any) -> int | float | None:
    """A cell of a table, or a value of JSON, as a finite number; None if it is not written as one."""
    if type(value) is str and NUMBER.fullmatch(value.strip()):
        value = float(value)
    return value if type(value) is int or (type(value) is float and math.isfinite(value)) else None


def shown(value: object) -> str:
    """A value in a message, not too long for it."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def listed(names: Iterable[str]) -> str:
    """Names of columns in a message."""
    return shown(", ".join(names))
