"""`tidegate skip`: accept that records were lost before the operator read them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.driver_client import refuse_while_driven
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.repair.skip import shown, skip

_RANGE = re.compile(r"(\d+):(\d+)-(\d+)")


@click.command("skip")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@click.argument("ranges", nargs=-1, required=True, metavar="PARTITION:FROM-TO...")
@click.option("--topic", help="Input topic that has lost the records; default: the first one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path, operator: str, ranges: tuple[str, ...], topic: str | None, as_json: bool) -> None:
    """Continue after records that the input topic deleted before OPERATOR had read them.

    When this happens, the operator stops and names the ranges. TO is the first offset to read next. If the topic lost
    records that had been read already, TO is smaller than FROM, and the operator reads what the topic has there now.
    The log records what was skipped and when.

    Example: tidegate skip flights.yaml carrier_updates 0:1200-1900 3:15-77
    """
    application = load(file)
    [name] = select_operators(application, operator)
    refuse_while_driven(application, name)
    named = dict(_range(text) for text in ranges)
    batch = skip(application, name, named, topic=topic)
    line = {"operator": name, "batch": batch, "skipped": {str(p): list(offsets) for p, offsets in named.items()}}
    click.echo(json.dumps(line) if as_json else f"{name}: skipped {shown(named)}, recorded as batch {batch}")


def _range(text: str) -> tuple[int, tuple[int, int]]:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not PARTITION:FROM-TO")
    return int(found[1]), (int(found[2]), int(found[3]))
