"""Connections and transactions of the control database, with errors that show no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from tidegate.contracts.errors import EngineError
from tidegate.contracts.extras import require
from tidegate.control.address import Address

LONGEST_WAIT_S = 5
"""How long to wait for the lock of another writer, or for a server that does not answer, in seconds."""

_TABLES = 7_433_472
"""Key of PostgreSQL's advisory lock of all tables. Any number that is not in use."""

_CONNECT: dict[str, dict[str, object]] = {
    "sqlite": {"timeout": LONGEST_WAIT_S},
    "postgresql": {
        "connect_timeout": LONGEST_WAIT_S,
        "tcp_user_timeout": LONGEST_WAIT_S * 1_000,
        "application_name": "tidegate",
        "options": f"-c statement_timeout=60s -c lock_timeout={LONGEST_WAIT_S}s",
    },
}


class Database:
    """The control database at an address.

    Each transaction opens a new connection. So a database that was dropped and re-created, or a file that was replaced,
    is noticed.
    """

    def __init__(self, address: Address) -> None:
        if address.kind == "postgresql":
            require("psycopg")
        self.address = address
        self._engine = create_engine(address.url, poolclass=NullPool, connect_args=_CONNECT[address.kind])
        if address.kind == "sqlite":
            event.listen(self._engine, "connect", _obey_foreign_keys)
            event.listen(self._engine, "begin", _take_the_lock)

    @contextmanager
    def begin(self, *, alone: bool = False) -> Iterator[Connection]:
        """Run the block in a transaction: commit at its end, roll back after an exception.

        `alone`: no other transaction is open meanwhile, as a change of tables needs. It locks tables in another order
        than the writers of rows do, and beside each other both would wait for each other.

        Raises EngineError if the database fails, or if others do not end in time.
        """
        lock = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
        try:
            with self._engine.begin() as connection:
                if self.address.kind == "postgresql":  # SQLite has one transaction at a time anyway
                    connection.execute(text(f"SELECT {lock}(:key)"), {"key": _TABLES})
                yield connection
        except SQLAlchemyError as error:
            raise self._failure(error) from None

    def _failure(self, error: SQLAlchemyError) -> EngineError:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        reason = self.address.redact(" ".join(str(cause).split()))
        return EngineError(
            f"the control database failed: {reason}",
            value=self.address.redacted_url,
            remedy="see that it can be reached and written, and that `tidegate db current` names the newest revision",
        )


def _obey_foreign_keys(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy alone begins transactions, those of DDL included
    connection.execute("PRAGMA foreign_keys=ON")


def _take_the_lock(connection: Connection) -> None:
    """Take SQLite's write lock at the beginning of the transaction.

    A transaction that first reads and then wants to write would fail at once, instead of waiting for the other writer.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def insert(connection: Connection, table: type[Any]) -> Any:
    """Return an INSERT of the connection's dialect, which supports ON CONFLICT."""
    return {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[connection.dialect.name](table)
