"""`tidegate settle`: record whether output was published, if neither the offset commit nor the topic can tell."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import refuse_while_driven
from tidegate.cli.shared import json_option, show
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.repair.settle import settle


@click.command("settle")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@click.option("--published/--unpublished", default=None, help="Treat the named batches as published, or publish them.")
@click.option("--partition", "partitions", type=int, multiple=True, help="Only this partition; repeatable.")
@json_option
def command(file: Path, operator: str, published: bool | None, partitions: tuple[int, ...]) -> None:
    """Record whether the newest output of OPERATOR was published, if Kafka no longer shows it.

    When this happens, the operator stops and names the batches: their offset commits have expired, and the topic may
    have deleted the output. --published treats the output as published; --unpublished publishes it, perhaps a second
    time. The log records the decision and when it was made.

    Example: tidegate settle flights.yaml carrier_updates --published
    """
    application = load(file)
    [name] = select_operators(application, operator)
    if published is None:
        raise click.UsageError("add --published or --unpublished")
    refuse_while_driven(application, name)
    claim = settle(application, name, published=published, partitions=partitions or None)
    settled = {str(partition): decision.batch for partition, decision in sorted(claim.settled.items())}
    result = {"operator": name, "batch": claim.batch, "published": published, "settled": settled}
    places = ", ".join(f"partition {partition} batch {batch}" for partition, batch in settled.items())
    did = "marked as published" if published else "published"
    show(result, f"{name}: {did} {places}; recorded as batch {claim.batch}")
