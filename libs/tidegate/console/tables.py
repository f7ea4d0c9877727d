"""Tables of cells for pages: rows of a log with keys and values decoded by the operator's formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.console import texts
from tidegate.contracts.config import OperatorConfig, OperatorRules

_TIMES = ("timestamp", "window_start", "window_end", "bound", "valid_from")
_DURATIONS = ("lateness",)
_HEADINGS = {"timestamp": "event time", "bound": "oldest accepted time", "seq": "place"}


class Cell(NamedTuple):
    """Text of a cell.

    `form`: `text`, `hex`, `null`, `number` or `time`. `cut`: the number of all bytes if some are cut off.
    """

    text: str
    form: str = "text"
    cut: int | None = None


class CellTable(NamedTuple):
    """The headings of a table, and its rows."""

    headings: list[str]
    rows: list[list[Cell]]


def cells_of(rows: pa.Table, config: OperatorConfig, rules: OperatorRules) -> CellTable:
    """Return the rows as cells. `rules`: those of the operator or of its step."""
    columns = [list(_cells(name, rows[name], config, rules)) for name in rows.column_names]
    headings = [_HEADINGS.get(name, name.replace("_", " ")) for name in rows.column_names]
    return CellTable(headings, [list(row) for row in zip(*columns, strict=True)])


def _cells(name: str, column: pa.ChunkedArray, config: OperatorConfig, rules: OperatorRules) -> Iterator[Cell]:
    is_time = pa.types.is_timestamp(column.type)
    values = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    for value in values.to_pylist():
        yield cell_of(name, value, config, rules, is_time=is_time)


def cell_of(name: str, value: Any, config: OperatorConfig, rules: OperatorRules, *, is_time: bool = False) -> Cell:
    """Return the cell of a value in the column of that name. `is_time`: the column has times, in ms."""
    if name in ("key", "value"):
        return _of_bytes(name, value, config, rules)
    return _plain(name, value, is_time=is_time or name in _TIMES)


def _of_bytes(name: str, content: bytes | None, config: OperatorConfig, rules: OperatorRules) -> Cell:
    form, length = (config.key_format, texts.KEY_LENGTH) if name == "key" else (rules.value_format, texts.VALUE_LENGTH)
    found = texts.shown(content, form, length)
    return Cell("null", "null") if found is None else Cell(found.text, "hex" if found.is_hex else "text", found.size)


def _plain(name: str, value: Any, *, is_time: bool) -> Cell:
    if value is None:
        return Cell("-", "null")
    if is_time:
        return Cell(texts.time_text(value), "time" if texts.is_time(value) else "text")
    if name in _DURATIONS:
        return Cell(texts.age_text(value), "number")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    return Cell(str(value), "number") if isinstance(value, int) else Cell(texts.visible(value))
