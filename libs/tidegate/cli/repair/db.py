"""`tidegate db`: manage the tables of the control database, and rebuild their contents from the operator logs."""

from __future__ import annotations

from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.cli.shared import json_option, note, show
from tidegate.contracts.errors import UserError
from tidegate.control import revisions
from tidegate.control.database import Database
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync.backfill import rebuild as rebuild_operator

_FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def command() -> None:
    """Manage the control database."""


@command.command()
@_FILE
@json_option
def upgrade(file: Path) -> None:
    """Upgrade the tables to the newest revision.

    \b
    Example:
      tidegate db upgrade flights.yaml
    """
    database = _database(load(file))
    revisions.upgrade(database)
    _show(database)


@command.command()
@_FILE
@click.argument("revision")
@json_option
def downgrade(file: Path, revision: str) -> None:
    """Downgrade the tables to an older REVISION; `base` drops them. Services do not write to downgraded tables.

    \b
    Example:
      tidegate db downgrade flights.yaml base
    """
    database = _database(load(file))
    revisions.downgrade(database, revision)
    _show(database)


@command.command()
@_FILE
@json_option
def current(file: Path) -> None:
    """Show the revision of the tables, and the newest revision, which this release needs.

    \b
    Example:
      tidegate db current flights.yaml
    """
    _show(_database(load(file)))


@command.command()
@_FILE
@json_option
def rebuild(file: Path) -> None:
    """Rewrite the contents of the tables from the logs of FILE's operators. Services may keep running.

    \b
    Example:
      tidegate db rebuild flights.yaml
    """
    application = load(file)
    database = _database(application)
    revisions.prepare(database)
    batches = {}
    for name in application.operators:
        note(f"{name}: reading its log")
        batches[name] = rebuild_operator(database, application, name)
    lines = [f"{name}: {count:,} batches" for name, count in batches.items()]
    show({"database": database.address.redacted_url, "batches": batches}, "\n".join(lines))


def _database(application: Application) -> Database:
    address = application.control_database
    if address is None:
        raise UserError("the file has no control database", remedy="add control: sqlite:///control.db")
    return Database(address)


def _show(database: Database) -> None:
    shown, found, newest = database.address.redacted_url, revisions.current(database), revisions.newest()
    text = f"{shown}: revision {found or 'none'}" + ("" if found == newest else f"; this program needs {newest}")
    show({"database": shown, "revision": found, "newest": newest}, text)
