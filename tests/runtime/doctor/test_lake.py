"""What the doctor finds wrong with the lake and the logs: faults planted in real logs where that can be done."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lakes import entry_path, lake_at
from tests.runtime.miniature import NAME, application
from tests.state.logs import a_file, commit_rows, meta, rows
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.log_schema import log_schema
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import lake
from tidegate.runtime.doctor.lake import CHECKS, DISK_CHECKS, Disk, Log
from tidegate.state import leases
from tidegate.state.alignment_decisions import Lease
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.protocol_decisions import MAX_BATCHES
from tidegate.state.upkeep.orphans import MIN_AGE_MS

pytestmark = pytest.mark.fast

ROOM = Disk(role="lake", path=Path("lake"), writable=True, free=2**40, total=2**41)


class World:
    """An application whose operator's log a test writes."""

    def __init__(self, folder: Path) -> None:
        self.application: Application = application(folder)
        self.path = self.application.lake.folder / NAME
        schema = log_schema(operator_for(self.application.operators[NAME]).columns)
        self.log = OperatorLog.open(lake_at(self.path), NAME, schema, create=True)

    def commit(self, **more: Any) -> BatchMeta:
        newest = self.log.newest()
        made = meta(self.log, newest.batch + 1 if newest else 0, **{"operator": NAME} | more)
        self.log.commit(made, [])
        return made

    def seen(self) -> Log:
        return lake.collect_logs(self.application)[NAME]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def found(log: Log) -> list[tuple[str, str, str]]:
    return [(each.problem, each.value, each.remedy) for check in CHECKS for each in check(log)]


def test_an_intact_log_has_no_finding(world: World) -> None:
    world.commit()
    assert found(world.seen()) == []


def test_an_operator_that_has_not_run_has_no_log_and_no_finding(tmp_path: Path) -> None:
    assert lake.collect_logs(application(tmp_path)) == {}


def test_a_truncated_entry_is_reported_with_its_file(world: World) -> None:
    world.commit()
    world.commit()
    torn = entry_path(world.log.lake, world.log.version)
    torn.write_bytes(b"")
    [(problem, value, remedy)] = found(world.seen())
    assert "empty or truncated" in problem
    assert value == str(torn)
    assert "move it away" in remedy


def test_a_log_of_a_different_format_is_reported(world: World) -> None:
    first = entry_path(world.log.lake, 0)
    first.write_text(first.read_text().replace('"tidegate.format":"3"', '"tidegate.format":"99"'))
    [(problem, value, _)] = found(world.seen())
    assert problem == "the operator log has a different format"
    assert value.startswith("99 in")


def test_a_log_of_a_different_operator_is_reported(world: World) -> None:
    world.path.rename(world.application.lake.folder / "other")
    config = world.application.operators[NAME]
    other = world.application.model_copy(update={"operators": {"other": config}})
    [(problem, _, remedy)] = found(lake.collect_logs(other)["other"])
    assert problem == "the log belongs to another operator"
    assert "of its own" in remedy


def test_a_log_that_another_program_changed_is_reported(world: World) -> None:
    world.commit()
    world.commit()
    foreign = entry_path(world.log.lake, world.log.version + 1)
    file = {"path": "x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    foreign.write_text('{"add":' + str(file).replace("'", '"').replace("True", "true") + "}\n")
    [(problem, value, remedy)] = found(world.seen())
    assert "another program changed data" in problem
    assert value == str(foreign)
    assert "move those entries" in remedy


def test_a_log_that_cannot_be_written_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit()
    locked = world.path / "_delta_log"
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != locked and real(path, mode))
    [(problem, value, remedy)] = found(world.seen())
    assert (problem, value) == ("the operator log cannot be written", str(world.path))
    assert "chown" in remedy


def test_a_log_without_checkpoints_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake, "CHECKPOINT_EVERY", 2)
    for _ in range(10):
        world.commit()
    [(problem, value, remedy)] = found(world.seen())
    assert (problem, value) == ("the log has had no checkpoint for a long time", "11 entries")
    assert "_delta_log" in remedy
    monkeypatch.setattr("tidegate.state.delta_log.operator_log.CHECKPOINT_EVERY", 2)
    world.commit()
    world.commit()
    assert found(world.seen()) == []


def test_a_log_that_is_never_compacted_is_reported_with_the_command(world: World) -> None:
    world.log.commit(meta(world.log, lake.OVERDUE_FACTOR * MAX_BATCHES + 1, operator=NAME), [])
    [(problem, value, remedy)] = found(world.seen())
    assert "not been compacted" in problem
    assert value == "2,049 batches, 0 files"
    assert f"tidegate compact FILE --operator {NAME}" in remedy


def test_files_that_no_commit_names_are_counted_once_they_are_old(world: World) -> None:
    old_ms = SYSTEM_CLOCK.now_ms() - 2 * MIN_AGE_MS
    commit_rows(world.log, 0, {("state", 0): rows("a")}, operator=NAME, clock=SYSTEM_CLOCK.now_ms())
    lost = a_file(world.log, "state", 0, rows("b", "c"), batch=1, attempt="dead")
    world.commit(clock=SYSTEM_CLOCK.now_ms())
    assert found(world.seen()) == [], "a running attempt's files are nobody's business"
    file = world.path / lost.path
    for entry in (world.path / "_delta_log").glob("*.json"):
        entry.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{old_ms}', entry.read_text()))
    [(problem, value, remedy)] = found(world.seen())
    assert "failed attempts" in problem
    assert value.startswith("1 files, ")
    assert "each compaction cleans" in remedy
    assert file.exists()


def test_a_clock_that_went_back_is_reported(world: World) -> None:
    world.commit(clock=SYSTEM_CLOCK.now_ms() + 3_600_000)
    [(problem, value, remedy)] = found(world.seen())
    assert "in the future" in problem
    assert value in ("1h", "3599s")
    assert "NTP" in remedy


def of_disk(disk: Disk) -> list[tuple[str, str, str]]:
    return [(each.problem, each.value, each.remedy) for check in DISK_CHECKS for each in check(disk)]


def test_a_disk_with_room_has_no_finding() -> None:
    assert of_disk(ROOM) == []
    assert of_disk(replace(ROOM, free=2**31, total=2**40)) == [], "2 GiB are enough, however large the disk"


def test_a_disk_that_is_nearly_full_is_reported() -> None:
    [(problem, value, remedy)] = of_disk(replace(ROOM, free=2**20, total=2**30))
    assert problem == "the disk of the lake is nearly full"
    assert value == "1 MiB of 1,024 MiB free at lake"
    assert "keep_output" in remedy


def test_a_folder_that_cannot_be_written_is_reported_with_the_command() -> None:
    [(problem, _, remedy)] = of_disk(replace(ROOM, writable=False, role="state"))
    assert problem == "this user cannot write to the state folder"
    assert "chown" in remedy


def test_disks_are_checked_where_the_folders_would_be_created(tmp_path: Path) -> None:
    seen = {disk.role: disk for disk in lake.collect_disks(application(tmp_path / "not" / "yet"))}
    assert seen.keys() == {"lake", "state"}
    assert seen["lake"].writable and 0 < seen["lake"].free <= seen["lake"].total


def test_a_reader_absent_for_longer_than_the_rewind_window_is_reported_with_its_lease(world: World) -> None:
    world.commit()
    now_ms, window_ms = SYSTEM_CLOCK.now_ms(), world.application.operators[NAME].rewind_window
    leases.write(world.log.lake, "here", Lease(1, now_ms - window_ms + 60_000, {0: 5}))
    leases.write(world.log.lake, "gone", Lease(1, now_ms - 2 * window_ms, {0: 5}))
    [(problem, value, remedy)] = found(world.seen())
    assert problem == "the table no longer waits for a join that is not running"
    assert value.startswith("gone, for ")
    assert str(world.path / leases.key_of("gone")) in remedy
