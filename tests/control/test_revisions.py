"""The migrations: up, down, and no drift between them and the models, on SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import inspect, text

from tidegate.contracts.errors import EngineError, StateError, UserError
from tidegate.control import ledger, revisions
from tidegate.control.database import Database
from tidegate.control.ledger import OperatorKey
from tidegate.control.models import Base

TABLES = sorted(Base.metadata.tables)


def tables(database: Database) -> list[str]:
    with database.begin() as connection:
        return sorted(name for name in inspect(connection).get_table_names() if name != revisions.VERSIONS)


def test_upgrade_creates_every_table_and_downgrade_drops_them(database: Database) -> None:
    for _ in range(2):
        revisions.upgrade(database)
        assert (revisions.current(database), tables(database)) == (revisions.newest(), TABLES)
        revisions.downgrade(database, "base")
        assert (revisions.current(database), tables(database)) == (None, [])


def test_the_migrations_create_the_tables_of_the_models(database: Database) -> None:
    revisions.upgrade(database)
    with database.begin() as connection:
        assert revisions.drift(connection) == []


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE batches DROP COLUMN emitted",
        "ALTER TABLE batches ADD COLUMN surprise INTEGER",
        "DROP INDEX ix_batches_clock_ms",
        "DROP TABLE incidents",
    ],
)
def test_a_drift_is_detected(database: Database, change: str) -> None:
    revisions.upgrade(database)
    with database.begin() as connection:
        connection.execute(text(change))
        assert revisions.drift(connection) != []


def test_an_upgrade_to_the_current_revision_changes_nothing(database: Database) -> None:
    revisions.upgrade(database)
    revisions.upgrade(database)
    assert revisions.current(database) == revisions.newest()


def test_services_that_start_with_a_new_database_create_its_tables_once(database: Database) -> None:
    with ThreadPoolExecutor(4) as services:
        list(services.map(lambda _: revisions.prepare(database), range(4)))
    assert revisions.current(database) == revisions.newest()


def test_a_service_does_not_re_create_tables_that_were_dropped_on_purpose(database: Database) -> None:
    revisions.upgrade(database)
    revisions.downgrade(database, "base")
    with pytest.raises(StateError) as raised:
        revisions.prepare(database)
    assert raised.value.remedy == "run tidegate db upgrade FILE"
    assert tables(database) == []


def test_an_unknown_downgrade_revision_is_a_user_error(database: Database) -> None:
    revisions.upgrade(database)
    with pytest.raises(UserError, match="cannot downgrade"):
        revisions.downgrade(database, "never")


def test_a_failed_migration_step_leaves_the_tables_unchanged(database: Database) -> None:
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE recoveries (surprise INTEGER)"))
    with pytest.raises(EngineError):
        revisions.upgrade(database)
    assert tables(database) == ["recoveries"]


def test_a_change_of_the_tables_waits_for_a_transaction_that_writes_rows(database: Database) -> None:
    revisions.upgrade(database)
    key = OperatorKey("app", "updates")
    with ThreadPoolExecutor(1) as other:
        with database.begin() as connection:
            connection.execute(text("SELECT * FROM instances"))
            dropping = other.submit(revisions.downgrade, database, "base")
            with pytest.raises(TimeoutError):
                dropping.result(timeout=0.5)
            ledger.upsert_operator(connection, key, lake="lake", kind="suppression")
        dropping.result()
    assert tables(database) == []
