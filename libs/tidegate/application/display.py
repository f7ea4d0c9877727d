"""How applications, statuses and results show themselves in notebooks: tables in HTML, with all text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any


def table_html(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the rows, which all have the columns of the first one."""
    columns = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(str(column))}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row.values()))}</tr>" for row in rows)
    return f"<table><caption>{escape(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"<td>{escape(as_text(value))}</td>"


def as_text(value: Any) -> str:
    """Return the value as text: bytes decoded as UTF-8 with escapes for other bytes, None as `null`."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return "null" if value is None else str(value)
