"""How applications, statuses and results show themselves: tables in HTML, with all text escaped, and as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any


def table_html(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return a table of the rows; `columns`: default, those of the first row."""
    names = list(columns if columns is not None else rows[0] if rows else [])
    head = "".join(f"<th>{escape(str(name))}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(row[name]) for name in names)}</tr>" for row in rows)
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def table_text(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the rows in columns of equal width."""
    lines = [list(columns), *([as_text(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cell(value: Any) -> str:
    return f"<td>{escape(as_text(value))}</td>"


def as_text(value: Any) -> str:
    """Return the value as text: bytes decoded as UTF-8 with escapes for other bytes, None as `null`."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return "null" if value is None else str(value)


class Rows:
    """The result of a query. `table` is the Arrow table; iteration gives a dictionary per row."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.table.to_pylist())

    def __repr__(self) -> str:
        return table_text(self.table.column_names, self.table.to_pylist())

    def _repr_html_(self) -> str:
        return table_html("", self.table.to_pylist(), self.table.column_names)
