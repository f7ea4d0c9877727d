"""The revision of the control database's tables.

The steps between revisions are in the folder `migrations`.
"""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect, text

from tidegate.contracts.errors import StateError, UserError
from tidegate.control.database import Database
from tidegate.control.models import Base

VERSIONS = "alembic_version"
_LOCK = 7_433_472
"""Of PostgreSQL: one process changes the tables at a time. Any number that nobody else takes."""


def newest() -> str:
    """The revision that this program works with."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def current(database: Database) -> str | None:
    """The revision that the database has; None: no tables."""
    with database.begin() as connection:
        return _current(connection)


def upgrade(database: Database) -> None:
    """The database has the newest revision."""
    with database.begin() as connection:
        _locked(connection)
        command.upgrade(_config(connection), "head")


def downgrade(database: Database, revision: str) -> None:
    """The database has that older revision, or with `base` no tables. UserError when it is not older."""
    with database.begin() as connection:
        _locked(connection)
        try:
            command.downgrade(_config(connection), revision)
        except CommandError as error:
            remedy = f"name a revision of the folder migrations, or base; the database has {_current(connection)}"
            raise UserError(f"no way back: {error}", value=revision, remedy=remedy) from None


def prepare(database: Database) -> None:
    """The database has the newest revision: one that never had tables gets them. StateError for any other revision."""
    with database.begin() as connection:
        _locked(connection)
        if not inspect(connection).has_table(VERSIONS):
            command.upgrade(_config(connection), "head")
        elif (found := _current(connection)) != newest():
            raise StateError(
                "the control database has another revision than this program",
                value=f"{found}, not {newest()}, in {database.address.shown}",
                remedy="tidegate db upgrade FILE",
            )


def drift(connection: Connection) -> list[object]:
    """How the database's tables differ from the models; empty: they don't."""
    return list(compare_metadata(_context(connection), Base.metadata))


def _current(connection: Connection) -> str | None:
    return _context(connection).get_current_revision()


def _context(connection: Connection) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"compare_type": True})


def _locked(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite has one writer anyway
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "migrations:")
    config.set_main_option("path_separator", "os")
    return config
