"""Rows of a trace file, one by one, by the names of their columns. What cannot be read is one line: file, row, reason."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from slotlab import UserError

Line = tuple[int, Sequence[Any]]  # number in the file, as an editor counts, and the values of the columns asked for


@dataclass(frozen=True)
class TraceFile:
    """A file that is read lazily: what is in memory does not depend on its size."""

    path: Path

    def refuse(self, row: int, reason: str) -> UserError:
        """The error about one row."""
        return UserError(f"{self.path}: row {row}: {reason}")

    def cells(self) -> Iterator[tuple[int, list[str]]]:
        """Rows of comma-separated cells, as text. An empty line is no row."""
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            try:
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
            except (UnicodeDecodeError, csv.Error) as error:
                raise self.refuse(reader.line_num + 1, f"is no text in columns ({error})") from None
        if not reader.line_num:
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
                raise self.refuse(1, f"the column {name} is {found}; there is: {', '.join(header)}")
        return [header.index(name) for name in columns]

    def json_lines(self, columns: Sequence[str]) -> Iterator[Line]:
        """The values of `columns` of one JSON object per line."""
        number = 0
        with self.path.open(encoding="utf-8-sig") as file:
            try:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield number, self._values(number, json.loads(line), columns)
            except ValueError as error:  # no JSON, or no UTF-8
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
                raise self.refuse(row, f"{name} is missing; there is: {', '.join(item)}")
        return [item[name] for name in columns]

    def count(self, row: int, name: str, value: Any) -> int:
        """A value as a whole number, at least 0; `12.0` is one."""
        try:
            number = float(value)
            if number >= 0 and (whole := int(number)) == number:
                return whole
        except (ValueError, TypeError, OverflowError):
            pass
        raise self.refuse(row, f"{name}={value}: must be a whole number, at least 0")

    def number(self, row: int, name: str, value: Any) -> float:
        """A value as a finite number."""
        try:
            if math.isfinite(number := float(value)):
                return number
        except (ValueError, TypeError):
            pass
        raise self.refuse(row, f"{name}={value}: must be a number")
