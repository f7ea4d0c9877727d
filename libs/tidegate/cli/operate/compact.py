"""`tidegate compact`: write a snapshot of each partition's state and merge small files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import carry_out, takeover_option
from tidegate.runtime.configuration.application import select_operators


@click.command("compact")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", "name", help="Compact only this operator.")
@takeover_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path, name: str | None, takeover: bool, as_json: bool) -> None:
    """Write state snapshots and merge small files in the logs of FILE's operators.

    If a driver is running, on whichever machine, it does the work; otherwise this command does it.

    Example: tidegate compact flights.yaml --operator carrier_updates
    """
    application = load(file)
    for operator in select_operators(application, name):
        done_by = carry_out("compact", application, operator, takeover=takeover)
        line = {"operator": operator, "compacted_by": done_by}
        click.echo(json.dumps(line) if as_json else f"{operator}: compacted by {done_by}")
