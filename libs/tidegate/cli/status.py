"""`tidegate status`: where each operator and partition stands, from the logs and the broker.

May import: click, rich, contracts, state, runtime.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.contracts.errors import TidegateError
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.naming import log_path
from tidegate.contracts.schema import BatchMeta, Counts
from tidegate.runtime.application import Application, load
from tidegate.runtime.history import has_version, metas
from tidegate.runtime.kafka import offsets
from tidegate.runtime.kafka.client import client
from tidegate.runtime.metrics import metrics_of
from tidegate.state.operator_log import OperatorLog

_LAST_OF_YEAR_9999 = 253_402_300_799_999
_COLUMNS = ("partition", "offset", "lag", "stream_time", "held", "held_bytes", "late", "rejected", "last_batch")


@click.command("status")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For machines; metrics included.")
def command(file: Path, as_json: bool) -> None:
    """Show offsets, lag, stream time, what is held, late and rejected records per operator and partition.

    Example: tidegate status flights.yaml
    """
    application = load(file)
    found = {name: operator_status(application, name) for name in application.operators}
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, status in found.items():
        _show(name, status)


def operator_status(application: Application, name: str) -> dict[str, Any]:
    """What the operator's log says, with the lag where the broker answers."""
    path = log_path(application.lake, name)
    if not has_version(path, None):
        return {"log": None, "note": "no log yet: it has not run"}
    config = application.operators[name]
    log = OperatorLog.at(path, None)
    newest = log.newest()
    if newest is None or config.input not in newest.offsets:
        return {"log": None, "note": "no batch of this input yet: it has not run"}
    ends, note = _ends(application, config.input)
    return {
        "log": str(path),
        "note": note,
        "epoch": newest.epoch,
        "batch": newest.batch,
        "clock": newest.clock,
        "action": newest.action,
        "partitions": [
            _partition(newest, config.input, partition, ends) for partition in sorted(newest.offsets[config.input])
        ],
        "metrics": metrics_of(metas(log)).report(),
    }


def _ends(application: Application, topic: str) -> tuple[dict[int, int], str]:
    try:
        return offsets.stable(client(application.kafka), topic), ""
    except TidegateError as error:
        return {}, error.problem


def _partition(newest: BatchMeta, topic: str, partition: int, ends: dict[int, int]) -> dict[str, Any]:
    offset = newest.offsets[topic][partition]
    counts = newest.totals.get(partition, Counts())
    return {
        "partition": partition,
        "offset": offset,
        "lag": ends[partition] - offset if partition in ends else None,
        "stream_time": newest.stream_time.get(partition, NO_STREAM_TIME),
        "last_batch": newest.last.get(partition, (None,))[0],
        **asdict(counts),
    }


def _show(name: str, status: dict[str, Any]) -> None:
    console = Console()
    if status["log"] is None:
        console.print(f"[bold]{name}[/]: {status['note']}")
        return
    title = f"{name}: epoch {status['epoch']}, batch {status['batch']} ({status['action']})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column.replace("_", " "), justify="right")
    for row in status["partitions"]:
        table.add_row(*(_shown(column, row[column]) for column in _COLUMNS))
    console.print(table)
    if status["note"]:
        console.print(f"lag unknown: {status['note']}")


def _shown(column: str, value: int | None) -> str:
    if value is None or (column == "stream_time" and value == NO_STREAM_TIME):
        return "-"
    if column == "stream_time" and value <= _LAST_OF_YEAR_9999:
        return datetime.fromtimestamp(value / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{value:,}"
