"""`tidegate redrive`: send late and rejected records back to a topic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import get_args

import click

from tidegate.application.target import load
from tidegate.cli.shared import json_option, note, show
from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import milliseconds_of
from tidegate.runtime.configuration.application import select_operators
from tidegate.runtime.repair.redrive import (
    Choice,
    DeadLetterKind,
    Reason,
    Redrive,
    Redriving,
)


def time(text: str) -> int:
    """Return the text as ms since the epoch. Accept ms since the epoch, or ISO 8601 (UTC unless it has an offset).

    Raise BadParameter if the text is neither.
    """
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write 2013-01-01T10:00:00, or ms since the epoch") from None
    return milliseconds_of(found)


@click.command("redrive")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("operator")
@click.option("--kind", type=click.Choice(get_args(DeadLetterKind)), help="Only records of this kind.  [default: both]")
@click.option("--cause", "causes", multiple=True, help="Only records with this cause; repeatable.")
@click.option("--partition", type=click.IntRange(0), help="Only records of this partition.")
@click.option("--since", type=time, help="Only records with this event time or a later one.")
@click.option("--until", type=time, help="Only records with an earlier event time.")
@click.option("--key", help="Only records with this key.")
@click.option("--to", metavar="TOPIC", help="Topic to send the records to.  [default: the operator's input]")
@click.option("--again", is_flag=True, help="Also send records that were sent back before.")
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@json_option
def command(
    file: Path,
    operator: str,
    kind: DeadLetterKind | None,
    causes: tuple[str, ...],
    partition: int | None,
    since: int | None,
    until: int | None,
    key: str | None,
    to: str | None,
    again: bool,
    dry_run: bool,
) -> None:
    """Send OPERATOR's late and rejected records from its log back to its input topic. Fix the cause first.

    Key, value, headers and timestamp are those of the record; the header tidegate-redriven gives the partition and
    offset where it was read. The records of each partition are one Kafka transaction. Records that were sent back
    before are skipped.

    \b
    Examples:
      tidegate redrive flights.yaml carrier_updates --dry-run
      tidegate redrive flights.yaml carrier_updates --kind rejected --cause "too far ahead" --since 2013-01-01
    """
    application = load(file)
    [name] = select_operators(application, operator)
    choice = Choice(
        kind=kind,
        causes=causes,
        partition=partition,
        since=since,
        until=until,
        key=None if key is None else key.encode(),
    )
    redriving = Redriving(application, name, _progress)
    if not dry_run:
        redriving.settle()
    redrive = redriving.plan(choice, to=to, again=again)
    if not dry_run:
        _send(redriving, redrive)
    show(_as_json(name, redrive, dry_run), _as_text(redrive, dry_run))


def _send(redriving: Redriving, redrive: Redrive) -> None:
    if redrive.rows.num_rows:
        redriving.send(redrive)
    elif redrive.reasons:
        raise UserError(
            "all selected records were sent back before",
            value=_records(sum(reason.records for reason in redrive.reasons)),
            remedy="select other records, or add --again to send them once more",
        )


def _progress(partition: int, sent: int) -> None:
    note(f"partition {partition}: {_records(sent)} sent")


def _as_json(operator: str, redrive: Redrive, dry_run: bool) -> dict[str, object]:
    return {
        "operator": operator,
        "to": redrive.to,
        "dry_run": dry_run,
        "sent": 0 if dry_run else redrive.rows.num_rows,
        "to_send": redrive.rows.num_rows if dry_run else 0,
        "reasons": [reason._asdict() for reason in redrive.reasons],
    }


def _as_text(redrive: Redrive, dry_run: bool) -> str:
    what = "would be sent" if dry_run else "sent"
    return "\n".join([*_lines(redrive.reasons), f"{_records(redrive.rows.num_rows)} {what} to {redrive.to}"])


def _records(number: int) -> str:
    return f"{number:,} record{'s' * (number != 1)}"


def _lines(reasons: Sequence[Reason]) -> list[str]:
    return [
        f"{reason.kind}, {reason.cause}: {reason.records:,}"
        + (f", {reason.before:,} of them sent back before" if reason.before else "")
        for reason in reasons
    ]
