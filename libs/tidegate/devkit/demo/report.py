"""Questions to the results, their SQL and the answers; and what to try next."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tidegate.devkit.demo.checks import HOURS, JOIN


def ask(console: Console, spark: Any, question: str, query: str) -> None:
    """Print the question, its SQL with the line breaks that it has, and the answer."""
    console.print(f"\n[bold]{question}[/]")
    console.print(query, style="dim", highlight=False, markup=False, soft_wrap=True)
    console.print(_table(spark.sql(query).toArrow()))


def show_next(console: Console, program: Path) -> None:
    """Print what to try next."""
    file, command = _short(program), _command()
    lines = (
        f"Try next: change {file}, such as its time limit, and run `{command} demo` again; or",
        f"""  {command} sql {file}:app "SELECT * FROM weather_as_of('2013-07-04 16:00')\"""",
        f"  {command} advise {file}:app {JOIN}",
        f"  {command} windows {file}:app {HOURS}",
        f"  {command} console {file}:app",
    )
    console.print("\n" + "\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _command() -> str:
    """Return how to call `tidegate` here: by its name if it is on PATH."""
    return "tidegate" if shutil.which("tidegate") else str(_short(Path(sys.executable).parent / "tidegate"))


def _table(rows: Any) -> Table:
    table = Table()
    for name in rows.column_names:
        table.add_column(name)
    for row in rows.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    return table
