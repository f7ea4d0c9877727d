"""`tidegate produce`: write JSON lines to a topic."""

from __future__ import annotations

from typing import BinaryIO

import click

from tidegate.cli.shared import DONE, FAILED, json_option, kafka_options, note, show, wants_json
from tidegate.devkit.produce_consume import produce_lines


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@kafka_options
@json_option
@click.pass_context
def command(context: click.Context, topic: str, file: BinaryIO, options: dict[str, str]) -> None:
    """Write JSON lines from FILE (or stdin) to TOPIC, one record per line.

    A line has the fields key, value (strings or null; key_base64 and value_base64 for other bytes), timestamp (ms),
    partition and headers ([{"key": "a", "value": "b"}]). Each is optional, but key or value must be present. Invalid
    lines are reported and do not stop the others; the exit code is then 1.

    \b
    Example:
      echo '{"key": "UA", "value": "late", "timestamp": 1357034400000}' | tidegate produce departures
    """
    refused: list[dict[str, object]] = []

    def complain(line: int, cause: str) -> None:
        refused.append({"line": line, "cause": cause})
        if not wants_json():
            note(f"line {line}: {cause}")

    sent = produce_lines(options, topic, file, complain)
    show({"sent": sent, "refused": refused}, f"{sent} records sent, {len(refused)} invalid lines")
    context.exit(FAILED if refused else DONE)
