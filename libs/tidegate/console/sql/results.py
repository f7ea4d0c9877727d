"""The result of a query as cells, as lines to draw, and as files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tidegate.application.display import as_text
from tidegate.console import texts
from tidegate.console.tables import Cell, CellTable, in_python

NO_CALENDAR = "a time that no calendar has"


def cells_of(rows: pa.Table) -> CellTable:
    """Return the rows as cells: bytes that are UTF-8 as text, times in UTC, records, lists and maps as JSON."""
    columns = [[_cell(value) for value in _values(column)] for column in rows.columns]
    return CellTable(rows.column_names, [list(row) for row in zip(*columns, strict=True)])


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    return (in_python(value, NO_CALENDAR) for value in column)


def _renamed(rows: pa.Table) -> pa.Table:
    """Return the rows with columns that are numbered: columns of a result may have equal names."""
    return rows.rename_columns([str(at) for at in range(rows.num_columns)])


def _cell(value: Any) -> Cell:
    if value is None:
        return Cell("null", "null")
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int | float | Decimal):
        return Cell(str(value), "number")
    if isinstance(value, datetime):
        return Cell(texts.plain_text(value), "time")
    content = value if isinstance(value, bytes) else _text(value).encode()
    found = texts.shown(content, "bytes" if isinstance(value, bytes) else "string", texts.VALUE_LENGTH)
    assert found is not None, "a value that is not null is shown"
    return Cell(found.text, "hex" if found.is_hex else "text", found.size)


def _text(value: Any) -> str:
    return texts.nested_text(value) if isinstance(value, dict | list) else texts.plain_text(value)


def chart_of(rows: pa.Table) -> dict[str, Any] | None:
    """Return the lines of the columns with numbers over the first column; None if that has neither times nor numbers.

    Rows without a time or number in the first column are left out.
    """
    if rows.num_columns < 2 or rows.num_rows < 2 or not _is_scale(rows.schema.types[0]):
        return None
    by_first = _renamed(rows).filter(pc.is_valid(rows.column(0))).sort_by("0")
    lines = {
        f"{name} ({at})" if rows.column_names.count(name) > 1 else name: by_first[str(at)]
        .cast(pa.float64())
        .to_pylist()
        for at, name in enumerate(rows.column_names)
        if at and _is_number(rows.schema.types[at])
    }
    if not lines:
        return None
    is_time = pa.types.is_timestamp(rows.schema.types[0])
    first = by_first["0"].cast(pa.timestamp("ms"), safe=False).cast(pa.int64()) if is_time else by_first["0"]
    return {
        "is_time": is_time,
        "label": "row",
        "time": [value / 1_000 if is_time else value for value in first.cast(pa.float64()).to_pylist()],
        "batch": list(range(1, len(by_first) + 1)),
        "charts": [{"title": f"By {rows.column_names[0]}", "lines": lines}],
    }


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_scale(kind: pa.DataType) -> bool:
    return _is_number(kind) or bool(pa.types.is_timestamp(kind))


def csv_of(rows: pa.Table) -> bytes:
    """Return the rows as CSV, with a line of names. Bytes are UTF-8 with escapes; records, lists and maps are JSON."""
    sink = pa.BufferOutputStream()
    columns = [column if _is_plain(column.type) else _as_text(column) for column in rows.columns]
    pa_csv.write_csv(pa.table(columns, names=rows.column_names), sink)
    return bytes(sink.getvalue())


def _is_plain(kind: pa.DataType) -> bool:
    return _is_scale(kind) or bool(pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _as_text(column: pa.ChunkedArray) -> pa.Array:
    texts_of = as_text if pa.types.is_binary(column.type) else _text
    return pa.array([None if value is None else texts_of(value) for value in _values(column)], pa.string())


def parquet_of(rows: pa.Table) -> bytes:
    """Return the rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


FILES: dict[str, tuple[str, Callable[[pa.Table], bytes]]] = {
    "csv": ("text/csv", csv_of),
    "parquet": ("application/vnd.apache.parquet", parquet_of),
}
"""The kinds of files that a result is given as: the type, and the function that makes the content."""
