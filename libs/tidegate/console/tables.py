"""Tables of cells for pages: rows of a log with keys and values decoded by the operator's formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.console import texts
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import Unavailable
from tidegate.kernels.codecs.shown import shown
from tidegate.operators.views import is_typed

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
    if name in ("key", "value"):
        yield from _of_bytes(name, column, config, rules)
        return
    is_time = pa.types.is_timestamp(column.type)
    for value in (column.cast(pa.int64()) if is_time else column).to_pylist():
        yield _plain(name, value, is_time=is_time or name in _TIMES)


def cell_of(name: str, value: Any, config: OperatorConfig, rules: OperatorRules) -> Cell:
    """Return the cell of a value in the column of that name."""
    if name in ("key", "value"):
        return next(_of_bytes(name, pa.chunked_array([[value]], pa.binary()), config, rules))
    return _plain(name, value, is_time=name in _TIMES)


def _of_bytes(name: str, column: pa.ChunkedArray, config: OperatorConfig, rules: OperatorRules) -> Iterator[Cell]:
    """Yield the cells of keys or values: as views show them, and as text or hexadecimal where they cannot be read."""
    form, length = (config.key_format, texts.KEY_LENGTH) if name == "key" else (rules.value_format, texts.VALUE_LENGTH)
    for content, value in zip(column.to_pylist(), _decoded(column, form), strict=True):
        if value is None:
            found = texts.shown(content, form, length)
            yield Cell("null", "null") if found is None else _text(found)
        elif isinstance(value, dict):
            found = texts.shown(texts.nested_text(value).encode(), "json", length)
            assert found is not None, "a record is shown"
            yield _text(found)
        else:
            yield Cell(str(value), "number")


def _text(found: texts.Shown) -> Cell:
    return Cell(found.text, "hex" if found.is_hex else "text", found.size)


def _decoded(column: pa.ChunkedArray, form: ShownAs) -> list[Any]:
    """Return the numbers and records that views show; None for text, and for what is not of the format.

    While its registry is away, no value can be read.
    """
    if not is_typed(form):
        return [None] * len(column)
    try:
        return [in_python(value, None) for value in shown(form).column(column)]
    except Unavailable:
        return [None] * len(column)


def in_python(value: pa.Scalar, instead: Any) -> Any:
    """Return the value; `instead` if it has a time that no calendar of Python has."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return instead


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
