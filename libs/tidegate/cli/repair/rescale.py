"""`tidegate rescale`: continue with another number of partitions after the input topic has grown."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import refuse_while_driven
from tidegate.cli.shared import json_option, show
from tidegate.runtime.configuration.application import select_operators


@click.command("rescale")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@click.option("--partitions", type=click.IntRange(min=1), required=True, help="How many the input topic has now.")
@click.option(
    "--recreated", is_flag=True, help="The input topic was deleted and created again: read it from its beginning."
)
@json_option
def command(file: Path, operator: str, partitions: int, recreated: bool) -> None:
    """Move the state of OPERATOR to the partitions of its input topic, after their number has changed.

    Stop the operator first. The records that the former partitions have are processed and published; then all that is
    held moves to the partitions that Kafka's partitioner chooses for the keys. If the move cannot be made, nothing
    changes. To go back, rescale again.

    Example: tidegate rescale flights.yaml carrier_updates --partitions 12
    """
    from tidegate.runtime.repair.rescale import Request, rescale
    from tidegate.runtime.service import session

    application = load(file)
    [name] = select_operators(application, operator)
    refuse_while_driven(application, name)
    request = Request(application=application, name=name, partitions=partitions, recreated=recreated)
    with ExitStack() as started:
        done = rescale(request, lambda: started.enter_context(session(application)))
    told = f"{name}: {done.before} to {done.after} partitions, recorded as batch {done.batch}; "
    told += f"{done.held:,} held in {done.rows:,} rows, {done.held_bytes:,} bytes, checksum {done.checksum:016x}, "
    told += f"the same before and after; {done.released:,} released"
    show({"operator": name, **asdict(done)}, told)
