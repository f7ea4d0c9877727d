"""`tidegate windows`: show the windows of an operator, from its committed state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tidegate.application.display import as_text
from tidegate.application.target import load
from tidegate.cli.reports.rows import print_rows
from tidegate.runtime.configuration.named_steps import step_with_windows
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
    """Show the windows that OPERATOR holds, by start and key. Of a pipeline, name the step as well: OPERATOR.STEP.

    Example: tidegate windows flights.yaml departures_per_hour --key JFK --backward
    """
    application = load(file)
    found = step_with_windows(application, name)
    windows = CommittedWindows(application.lake / found.operator, asked.pop("version"), found.step)
    if key is not None:
        rows = windows.fetch(key.encode(), **asked)
    else:
        first, last = (bound.encode() if bound else None for bound in (key_from, key_to))
        rows = windows.fetch_range(first, last, **asked)
    _show(rows, as_json)


def _show(found: list[Window], as_json: bool) -> None:
    if as_json:
        for window in found:
            click.echo(json.dumps(window._asdict() | {"key": as_text(window.key), "value": _shown(window.value)}))
        return
    print_rows(Window._fields, found)


def _shown(value: bytes | None) -> Any:
    """Return the value parsed as JSON, or as text if it is not JSON (as from a user's aggregate function)."""
    try:
        return None if value is None else json.loads(value)
    except ValueError:
        return as_text(value)
