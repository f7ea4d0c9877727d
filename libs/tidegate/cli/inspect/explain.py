"""`tidegate explain`: say why a key was emitted, and recompute that."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tidegate.application.display import as_text
from tidegate.application.target import load
from tidegate.cli.reports.rows import on_one_line
from tidegate.cli.shared import json_option, wants_json
from tidegate.console.explanations import Line, lines_of
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.doctor.explanation.finding import explain, key_of, newest_emissions
from tidegate.runtime.doctor.explanation.recomputation import from_topic
from tidegate.state.delta_log.positions import Position

DEADLINE_S = 30.0
_AS_TEXT = {"hex": "0x{}", "time": "{} UTC"}


@click.command("explain")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("name", metavar="OPERATOR")
@click.option("--key", required=True, help="The key: text, a number if keys are numbers, or 0x and hexadecimal digits.")
@click.option("--batch", type=click.IntRange(0), help="The newest emissions as of this batch; default: now.")
@json_option
def command(file: Path, name: str, key: str, batch: int | None) -> None:
    """Explain the newest emissions of a key of OPERATOR: cause, rule, configuration and records.

    Each emission is recomputed from the state before its batch and the records that the batch read, and compared with
    the log, byte for byte. It fails if one differs. Records that Kafka no longer has cannot be recomputed, which is
    said.

    \b
    Example:
      tidegate explain flights.yaml carrier_updates --key AA
    """
    application = load(file)
    select_operators(application, name)
    config = application.operators[name]
    read = from_topic(application, name, DEADLINE_S)
    positions = newest_emissions(application, name, key_of(key, config), batch)
    found = [explain(application, name, position, read) for position in positions]
    for each in found:
        if wants_json():
            click.echo(json.dumps(_plain(asdict(each)), default=as_text))
        else:
            _show(lines_of(each, config))
    if any(each.verdict == "different" for each in found):
        raise SystemExit(1)


def _plain(explained: dict[str, Any]) -> dict[str, Any]:
    """Return the explanation with its named tuples as objects."""
    position: Position = explained.pop("position")
    return position._asdict() | explained | {"tables": [table._asdict() for table in explained["tables"]]}


def _show(lines: list[Line]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for about, cell in lines:
        table.add_row(about, on_one_line(_AS_TEXT.get(cell.form, "{}").format(cell.text)))
    Console().print(table, "", markup=False)
