"""`tidegate windows`: show the windows of an operator, from its committed state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.application.target import load
from tidegate.cli.inspect.sql import readable
from tidegate.operators.registry import kinds_where
from tidegate.runtime.configuration.application import select_operators
from tidegate.state.committed_windows import CommittedWindows, Window


@click.command("windows")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", metavar="OPERATOR")
@click.option("--key", help="Only the windows of this key.")
@click.option("--key-from", help="Only keys from this one on, in byte order.")
@click.option("--key-to", help="Only keys up to and including this one.")
@click.option("--from", "from_ms", type=int, help="Only windows that start at this time (ms) or later.")
@click.option("--to", "to_ms", type=int, help="Only windows that start at this time (ms) or earlier.")
@click.option("--backward", is_flag=True, help="List the newest windows first.")
@click.option("--version", type=int, help="Show the windows as of this Delta version of the operator log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per window.")
def command(
    file: Path, name: str, key: str | None, key_from: str | None, key_to: str | None, as_json: bool, **asked: Any
) -> None:
    """Show the windows that OPERATOR holds, by start and key.

    Example: tidegate windows flights.yaml departures_per_hour --key JFK --backward
    """
    application = load(file)
    select_operators(application, name, kinds_where("holds_windows"))
    windows = CommittedWindows(application.lake / name, asked.pop("version"))
    if key is not None:
        found = windows.fetch(key.encode(), **asked)
    else:
        first, last = (bound.encode() if bound else None for bound in (key_from, key_to))
        found = windows.fetch_range(first, last, **asked)
    _show(found, as_json)


def _show(found: list[Window], as_json: bool) -> None:
    if as_json:
        for window in found:
            click.echo(json.dumps(window._asdict() | {"key": readable(window.key), "value": _shown(window.value)}))
        return
    table = Table(box=None, pad_edge=False)
    for column in Window._fields:
        table.add_column(column)
    for window in found:
        table.add_row(*map(readable, window))
    Console().print(table)


def _shown(value: bytes | None) -> Any:
    """Return the value parsed as JSON, or as text if it is not JSON (as from a user's aggregate function)."""
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        return readable(value)
