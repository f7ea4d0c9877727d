"""`tidegate flush`: emit everything that an operator holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import carry_out, takeover_option
from tidegate.runtime.configuration.application import select_operators


@click.command("flush")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@takeover_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path, operator: str, takeover: bool, as_json: bool) -> None:
    """Emit everything that OPERATOR of FILE holds, now, with the cause `flush`.

    If a driver is running, on whichever machine, it does the work; otherwise this command does it.

    Example: tidegate flush flights.yaml carrier_updates
    """
    application = load(file)
    [name] = select_operators(application, operator)
    done_by = carry_out("flush", application, name, takeover=takeover)
    line = {"operator": name, "flushed_by": done_by}
    click.echo(json.dumps(line) if as_json else f"{name}: flushed by {done_by}")
