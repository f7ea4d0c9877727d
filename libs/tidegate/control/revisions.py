"""The schema revision of the control database: check, upgrade and downgrade.

The migrations between revisions are in the folder `migrations`.
"""

from __future__ import annotations

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from tidegate.contracts.errors import StateError, UserError
from tidegate.control.database import Database
from tidegate.control.models import Base

VERSIONS = "alembic_version"


def newest() -> str:
    """Return the revision that this program works with."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def current(database: Database) -> str | None:
    """Return the revision of the database; None if it has no tables."""
    with database.begin() as connection:
        return _current(connection)


def upgrade(database: Database) -> None:
    """Migrate the database to the newest revision."""
    with database.begin(alone=True) as connection:
        command.upgrade(_config(connection), "head")


def downgrade(database: Database, revision: str) -> None:
    """Migrate the database back to an older revision, or with `base` to one without tables.

    Raises UserError if the revision is not older.
    """
    with database.begin(alone=True) as connection:
        try:
            command.downgrade(_config(connection), revision)
        except CommandError as error:
            remedy = f"name a revision of the folder migrations, or base; the database has {_current(connection)}"
            raise UserError(f"cannot downgrade: {error}", value=revision, remedy=remedy) from None


def prepare(database: Database) -> None:
    """Check that the database has the newest revision; create the tables if it never had any.

    Raises StateError if it has any other revision.
    """
    with database.begin() as connection:
        new, found = not inspect(connection).has_table(VERSIONS), _current(connection)
    if new:
        upgrade(database)
    elif found != newest():
        raise StateError(
            "the control database has a different revision than this program needs",
            value=f"{found}, not {newest()}, in {database.address.redacted_url}",
            remedy="run tidegate db upgrade FILE",
        )


def drift(connection: Connection) -> list[object]:
    """Return the differences between the database's tables and the models; empty if there are none."""
    return list(compare_metadata(_context(connection), Base.metadata))


def _current(connection: Connection) -> str | None:
    return _context(connection).get_current_revision()


def _context(connection: Connection) -> MigrationContext:
    return MigrationContext.configure(connection, opts={"compare_type": True})


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "tidegate:migrations")
    config.set_main_option("path_separator", "os")
    return config
