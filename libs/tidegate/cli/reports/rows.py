"""Rows of results, as people read them: a table, or one line for each value where a table would be too wide."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from tidegate.application.display import as_text
from tidegate.console.texts import visible

_WIDEST = 100_000


def on_one_line(value: object) -> str:
    """Return the value as text without line ends or other control characters, which a terminal would obey."""
    return visible(as_text(value))


def print_rows(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print the rows as a table, or each value on a line of its own if the terminal is too narrow for a table.

    Nothing is cut off. A file or another program gets the table, however wide it is.
    """
    console, table = Console(markup=False, highlight=False), _table(names, rows)
    width = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    if width <= console.width or not console.is_terminal:
        console.width = max(width, console.width)
        console.print(table)
        return
    longest = max(map(len, names))
    for number, row in enumerate(rows, start=1):
        console.print(f"row {number}")
        for name, value in zip(names, row, strict=True):
            console.print(f"  {name:<{longest}}  {on_one_line(value)}", soft_wrap=True)


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*map(on_one_line, row))
    return table
