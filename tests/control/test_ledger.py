"""The control database's rows from a log are the same, however and however often they were recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from sqlalchemy import select, text

from tests.control.contents import batches, batches_of_log, from_the_logs, rows
from tests.hypothesis_profile import sized
from tests.lakes import lake_at
from tests.runtime.miniature import NAME, application
from tests.state.logs import meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.log_schema import log_schema
from tidegate.control import ledger, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.ledger import OperatorKey
from tidegate.control.models import Configuration
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.control_sync import backfill
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import metas
from tidegate.state.upkeep.compaction import Kept, compact

KEY = OperatorKey("app", NAME)


class World:
    """An application's log that a test writes, and its control database."""

    def __init__(self, address: Address, folder: Path) -> None:
        self.application = application(folder).model_copy(update={"control": SecretStr(address.url)})
        self.database = Database(address)
        self.log = new_log(self.application)
        revisions.prepare(self.database)

    def commit(self, **more: Any) -> BatchMeta:
        """One more batch is in the log."""
        newest = self.log.newest()
        said = {"operator": NAME, "recorded": newest.recorded if newest else -1} | more
        made = meta(self.log, newest.batch + 1 if newest else 0, **said)
        self.log.commit(made, [])
        return made

    def catch_up(self) -> None:
        backfill.catch_up(self.database, self.application, NAME)

    def append(self, *noted: BatchMeta) -> bool:
        with self.database.begin() as connection:
            return backfill.append(connection, KEY, noted)


def new_log(application: Application) -> OperatorLog:
    columns = operator_for(application.operators[NAME]).columns
    return OperatorLog.open(lake_at(application.lake.folder / NAME), NAME, log_schema(columns), create=True)


@pytest.fixture
def world(address: Address, tmp_path: Path) -> World:
    """A log of three batches, of two configurations; a compaction and a recovery are among them."""
    made = World(address, tmp_path)
    counts = {0: Counts(records_in=3, applied=1, late=2, held=1), 1: Counts(records_in=2, applied=2, emitted=5, held=2)}
    made.commit(action="claim", config="first", settings={"kind": "suppression"})
    made.commit(config="first", counts=counts, totals=counts, recovered={1: "rebuild: damaged"})
    made.commit(action="compaction", config="first", totals=counts, snapshot_batch={0: 1, 1: 1})
    made.commit(action="claim", config="second", totals=counts, epoch=2, settings={"kind": "windows"})
    return made


def test_the_tables_agree_with_the_log(world: World) -> None:
    world.catch_up()
    assert batches(world.database, NAME) == batches_of_log(world.log.place.folder)
    with world.database.begin() as connection:
        found = select(Configuration.since_batch, Configuration.config, Configuration.settings)
        assert list(map(tuple, connection.execute(found.order_by(Configuration.since_batch)))) == [
            (0, "first", {"kind": "suppression"}),
            (3, "second", {"kind": "windows"}),
        ]
    [compaction], [recovery] = rows(world.database, "compactions"), rows(world.database, "recoveries")
    assert compaction["batch"] == 2
    assert {(name, recovery[name]) for name in ("batch", "partition", "reason")} == {
        ("batch", 1),
        ("partition", 1),
        ("reason", "rebuild: damaged"),
    }


def test_recording_a_batch_again_changes_nothing(world: World) -> None:
    world.catch_up()
    before = from_the_logs(world.database)
    world.catch_up()
    assert world.append(*metas(world.log))
    assert backfill.rebuild(world.database, world.application, NAME) == 4
    assert from_the_logs(world.database) == before


def test_batches_are_accepted_in_order_without_gaps(world: World) -> None:
    first, second, third = (world.commit(config="second") for _ in range(3))
    assert not world.append(first)  # the database has nothing yet
    backfill.catch_up(world.database, world.application, NAME)
    world.commit()
    with world.database.begin() as connection:
        connection.execute(text("DELETE FROM batches WHERE batch > 4"))
    assert not world.append(third)
    assert world.append(second, third)
    assert [row["batch"] for row in batches(world.database, NAME)] == list(range(7))


def test_the_batches_of_a_log_restored_to_an_earlier_state_are_removed(world: World) -> None:
    ahead = replace(world.commit(config="third"), attempt="another one")
    world.catch_up()
    with world.database.begin() as connection:
        ledger.forget(connection, KEY)
        ledger.record(connection, KEY, [*metas(world.log)[:-1], ahead, replace(ahead, batch=5)])
    world.catch_up()
    assert batches(world.database, NAME) == batches_of_log(world.log.place.folder)


def test_a_rebuild_keeps_heartbeats_and_incidents(world: World) -> None:
    world.catch_up()
    with world.database.begin() as connection:
        connection.execute(
            text("INSERT INTO incidents VALUES ('app', :name, 7, 'fenced', 'taken over')"), {"name": NAME}
        )
    backfill.rebuild(world.database, world.application, NAME)
    assert len(rows(world.database, "incidents")) == 1


def test_an_operator_without_a_log_has_no_batches(address: Address, tmp_path: Path) -> None:
    database = Database(address)
    revisions.prepare(database)
    assert backfill.rebuild(database, application(tmp_path), NAME) == 0
    backfill.catch_up(database, application(tmp_path), NAME)
    assert batches(database, NAME) == []


@pytest.mark.fast
@sized(15)
@given(data=st.data())
def test_after_any_recorded_and_lost_batches_the_tables_equal_a_rebuild(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Told in any pieces, with gaps and repetitions; tables emptied; the oldest batches dropped by retention."""
    folder = tmp_path_factory.mktemp("told")
    world = World(Address(f"sqlite:///{folder}/control.db"), folder)
    told = [world.commit(config=data.draw(st.sampled_from("ab"))) for _ in range(data.draw(st.integers(1, 8)))]
    for _ in range(data.draw(st.integers(0, 5))):
        start, happens = (
            data.draw(st.integers(0, len(told) - 1)),
            data.draw(st.sampled_from([tell, empty, drop_before])),
        )
        happens(world, told, start)
    world.catch_up()
    found = from_the_logs(world.database)
    assert batches(world.database, NAME)[-1]["batch"] == told[-1].batch
    backfill.rebuild(world.database, world.application, NAME)
    assert found == from_the_logs(world.database)


def tell(world: World, told: list[BatchMeta], start: int) -> None:
    """Three batches are told, as a driver does."""
    if not world.append(*told[start : start + 3]):
        world.catch_up()


def empty(world: World, _told: list[BatchMeta], _start: int) -> None:
    """The database has lost what it had."""
    with world.database.begin() as connection:
        ledger.forget(connection, KEY)


def drop_before(world: World, told: list[BatchMeta], start: int) -> None:
    """The log's batches before that one are gone, as after a compaction with `keep_output`."""
    newest = world.log.newest()
    assert newest is not None
    made = meta(world.log, newest.batch + 1, action="compaction", config=newest.config, clock=newest.clock + 1_000)
    made = replace(made, operator=NAME)
    keep_ms = made.clock - told[start].clock
    compact(world.log, made, Kept(slot=(), output_ms=keep_ms), rewind_window_ms=3_600_000)
    told.append(made)
