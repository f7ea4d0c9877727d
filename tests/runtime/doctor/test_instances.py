"""What the doctor finds in the control database, planted in a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from tidegate.control import instances as written
from tidegate.control import ledger, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import Heartbeat
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.doctor import instances
from tidegate.runtime.doctor.instances import CHECKS, STALE_AFTER_MS

pytestmark = pytest.mark.fast

NOW_MS = 10_000_000
CANARY = "s3cr3t-canary"


class World:
    """A control database, and what the doctor finds in it."""

    def __init__(self, folder: Path) -> None:
        self.address = Address(f"sqlite:///{folder}/control.db")
        self.database = Database(self.address)
        revisions.prepare(self.database)

    def heartbeat(
        self,
        instance: str,
        *,
        state: str = "running",
        age_ms: int = 0,
        ran_ms: int = 1,
        operator: str = "updates",
    ) -> None:
        key, then = OperatorKey("shop", operator), NOW_MS - age_ms
        told = Heartbeat(
            instance=instance, host="node1", pid=7, epoch=1, state=state, started_ms=then - ran_ms, heartbeat_ms=then
        )
        with self.database.begin() as connection:
            ledger.upsert_operator(connection, key, lake="lake", kind="suppression")
            written.record_heartbeat(connection, key, told)

    def found(self) -> list[tuple[str, str, str, str]]:
        seen = instances.collect(self.address, "shop", ["updates", "weather"], NOW_MS)
        assert seen is not None
        return [(each.about, each.problem, each.value, each.remedy) for check in CHECKS for each in check(seen)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_running_and_ended_drivers_are_not_findings(world: World) -> None:
    assert world.found() == []
    world.heartbeat("a", age_ms=STALE_AFTER_MS)
    world.heartbeat("b", state="drained", age_ms=10 * STALE_AFTER_MS)
    world.heartbeat("c", state="fenced", age_ms=10 * STALE_AFTER_MS)
    assert world.found() == []


def test_a_driver_without_heartbeats_is_reported_with_its_host(world: World) -> None:
    world.heartbeat("a", age_ms=120_000)
    [(about, problem, value, remedy)] = world.found()
    assert (about, problem) == ("updates", "a driver sends no heartbeats")
    assert value == "process 7 on node1, running, silent for 2m"
    assert "start the service again" in remedy


def test_a_silent_driver_with_a_running_successor_is_not_reported(world: World) -> None:
    world.heartbeat("killed", age_ms=120_000)
    world.heartbeat("its successor")
    assert world.found() == []


def test_two_running_drivers_of_one_operator_are_reported(world: World) -> None:
    world.heartbeat("a", ran_ms=2_000)
    world.heartbeat("b", age_ms=1_000)
    world.heartbeat("c", operator="weather")
    [(about, problem, value, remedy)] = world.found()
    assert (about, problem) == ("updates", "several drivers of one operator are running")
    assert value == "process 7 on node1, process 7 on node1"
    assert "fences the others" in remedy


def test_a_driver_killed_before_its_successor_started_does_not_count_as_running(world: World) -> None:
    world.heartbeat("killed", age_ms=3_000, ran_ms=9_000)
    world.heartbeat("its successor", ran_ms=2_000)
    assert world.found() == []


def test_a_driver_of_a_removed_operator_is_not_a_finding(world: World) -> None:
    world.heartbeat("a", age_ms=120_000, operator="former_updates")
    assert world.found() == []


def test_tables_of_a_different_release_are_reported_with_the_command(world: World) -> None:
    with world.database.begin() as connection:
        connection.execute(text(f"UPDATE {revisions.VERSIONS} SET version_num = 'older'"))
    [(about, problem, value, remedy)] = world.found()
    assert about == "control" and "a different revision" in problem
    assert value.startswith("older, not ")
    assert remedy == "run tidegate db upgrade FILE"


def test_a_database_that_does_not_answer_is_reported_without_its_password() -> None:
    address = Address(f"postgresql+psycopg://tidegate:{CANARY}@127.0.0.1:1/control")
    seen = instances.collect(address, "shop", ["updates"], NOW_MS)
    assert seen is not None
    [finding] = [each for check in CHECKS for each in check(seen)]
    assert "the control database failed" in finding.problem
    assert "reached" in finding.remedy
    assert CANARY not in repr(seen) + repr(finding)


def test_a_missing_database_file_is_not_a_finding(tmp_path: Path) -> None:
    assert instances.collect(Address(f"sqlite:///{tmp_path}/none.db"), "shop", ["updates"], NOW_MS) is None
    assert not (tmp_path / "none.db").exists()
