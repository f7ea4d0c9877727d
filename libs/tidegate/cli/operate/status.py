"""`tidegate status`: show the position of each operator and partition, from the operator logs and the broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.application.target import load
from tidegate.contracts.event_time import NO_STREAM_TIME, format_duration_ms
from tidegate.runtime.doctor.status import application_status

_LAST_OF_YEAR_9999 = 253_402_300_799_999
_COLUMNS = ("partition", "offset", "lag", "stream_time", "held", "held_bytes", "late", "rejected", "last_batch")


@click.command("status")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, including metrics.")
def command(file: Path, as_json: bool) -> None:
    """Show offsets, lag, stream time, and held, late and rejected records per operator and partition.

    Also explain why each operator and partition makes progress or does not.

    Example: tidegate status flights.yaml
    """
    application = load(file)
    found = application_status(application)
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, status in found.items():
        _show(name, status)


def _show(name: str, status: dict[str, Any]) -> None:
    console = Console()
    if status["log"] is None:
        console.print(f"[bold]{name}[/]: {status['note']}")
        _explain(console, status)
        return
    title = f"{name}: epoch {status['epoch']}, batch {status['batch']} ({status['action']})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column.replace("_", " "), justify="right", no_wrap=column == "stream_time")
    for row in status["partitions"]:
        table.add_row(*(_shown(column, row[column]) for column in _COLUMNS))
    console.print(table)
    if status["driver"] is not None:
        line = "  driver: process {process} on {host}, since {since}".format(**status["driver"] | _since(status))
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    _explain(console, status)
    for read in status["tables"]:
        line = f"  {_table_line(read)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _since(status: dict[str, Any]) -> dict[str, str]:
    return {"since": _shown("stream_time", status["driver"]["since"])}


def _table_line(table: dict[str, Any]) -> str:
    if table["version"] is None:
        return f"table {table['name']}: no log yet; start its service"
    versions = f"reads version {table['read']}; the newest is {table['version']}"
    written = datetime.fromtimestamp(table["clock"] / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    behind = max(table["behind_ms"].values(), default=0)
    time = (
        f"its stream time is up to {format_duration_ms(behind)} behind" if behind else "its stream time is not behind"
    )
    return f"table {table['name']}: {versions}, written {written}; {time}"


def _explain(console: Console, status: dict[str, Any]) -> None:
    """Print the explanation of the operator, then each explanation of partitions once, with the partitions that share
    it.
    """
    lines: dict[str, list[str]] = {f"{status['why']['rule']}: {status['why']['text']}": []}
    for row in status.get("partitions", ()):
        lines.setdefault(f"{row['why']['rule']}: {row['why']['text']}", []).append(str(row["partition"]))
    for line, partitions in lines.items():
        who = f"partition{'s' * (len(partitions) > 1)} {', '.join(partitions)}: " if partitions else ""
        console.print(f"  {who}{line}", highlight=False, markup=False, soft_wrap=True)


def _shown(column: str, value: int | None) -> str:
    if value is None or (column == "stream_time" and value == NO_STREAM_TIME):
        return "-"
    if column == "stream_time" and value <= _LAST_OF_YEAR_9999:
        return datetime.fromtimestamp(value / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{value:,}"
