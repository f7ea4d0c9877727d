"""`tidegate consume`: print a topic as JSON lines."""

from __future__ import annotations

import contextlib

import click

from tidegate.cli.shared import json_option, kafka_options
from tidegate.devkit.produce_consume import consume
from tidegate.devkit.record_lines import format_line


@click.command()
@click.argument("topic")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--offset", type=click.IntRange(0), help="Start at this offset of each partition.  [default: the first]")
@click.option("--max", "limit", type=click.IntRange(0), help="Stop after this many records.")
@click.option("--follow", is_flag=True, help="Wait for new records until Ctrl-C.")
@kafka_options
@json_option
def command(
    topic: str, partition: int | None, offset: int | None, limit: int | None, follow: bool, options: dict[str, str]
) -> None:
    """Print the committed records of TOPIC as JSON lines, in the format that `tidegate produce` reads.

    \b
    Examples:
      tidegate consume carrier-updates --max 10
      tidegate consume carrier-updates --partition 2 --offset 100 --follow
    """
    records = consume(options, topic, partition=partition, offset=offset, limit=limit, follow=follow)
    with contextlib.suppress(KeyboardInterrupt):
        for record in records:
            click.echo(format_line(record))
