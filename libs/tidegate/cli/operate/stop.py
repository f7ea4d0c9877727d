"""`tidegate stop`: end the running drivers of operators, on whichever machine they run."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import ask_driver
from tidegate.cli.shared import json_option, show
from tidegate.runtime.configuration.application import select_operators


@click.command("stop")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--operator", "name", help="Stop only the driver of this operator.")
@json_option
def command(file: Path, name: str | None) -> None:
    """End the running drivers of FILE's operators, on whichever machine they run.

    A driver finishes its batch, publishes it, and ends with exit code 0 once no operator of its process is left. A
    driver that stands by takes over, and a supervisor that always restarts its service starts it again: stop these
    first.

    Example: tidegate stop flights.yaml --operator carrier_updates
    """
    application = load(file)
    for operator in select_operators(application, name):
        lease = ask_driver("stop", application, operator)
        place = None if lease is None else lease.place
        text = f"{operator}: no driver is running" if place is None else f"{operator}: stopped {place}"
        show({"operator": operator, "stopped": place}, text)
