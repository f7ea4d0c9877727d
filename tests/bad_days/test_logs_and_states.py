"""The operator log or the local state is damaged, old or foreign; and two drivers of one operator."""

from __future__ import annotations

import logging
import os
import shutil

import pytest

from tests.bad_days.conftest import PARTITIONS, numbered, produce, published, wait_for
from tests.lakes import entry_path, lake_at
from tidegate.contracts.errors import Fenced, StateError
from tidegate.runtime.batch_loop.driver import NotClaimed
from tidegate.runtime.doctor.status import operator_status
from tidegate.state import driver_leases
from tidegate.state.delta_log import refusals
from tidegate.state.delta_log.log_entries import newest_version

pytestmark = [pytest.mark.broker, pytest.mark.spark]

AT_ONCE = {"buffer": {"max_keys": 0, "when_full": "emit"}}
HELD = {"until": {"time_limit": "1h"}}


def states(here):
    """The folders of the partitions' local states."""
    return sorted((here.application.state / "test" / here.name).glob("*/[0-9]"))


def header_of_random_bytes(folder):
    (folder / "header").write_bytes(os.urandom((folder / "header").stat().st_size))


def files_cut_short(folder):
    for path in folder.glob("generation-*"):
        for file in [path] if path.is_file() else path.iterdir():
            os.truncate(file, file.stat().st_size // 2)


def state_of_another_operator(folder, other):
    shutil.rmtree(folder)
    shutil.copytree(other, folder)


def test_damaged_and_foreign_local_states_are_rebuilt_from_the_log(world, broker, caplog, new_lake, tmp_path):
    """partition 0: random header   1: arrays cut short   2: another operator's   3: as it was"""
    here, other = world(**HELD), world(**HELD)
    other.application = other.application.model_copy(
        update={
            "lake": new_lake(tmp_path / "other-lake"),
            "state": tmp_path / "other-state",
        }
    )
    for each, numbers in ((here, range(200)), (other, range(1_000, 1_200))):
        produce(broker.bootstrap, each.source, *numbered(*numbers))
        each.run()
    folders = states(here)
    header_of_random_bytes(folders[0])
    files_cut_short(folders[1])
    state_of_another_operator(folders[2], states(other)[2])

    produce(broker.bootstrap, here.source, *numbered(*range(200, 204)))
    with caplog.at_level(logging.INFO, "tidegate"):
        driver = here.run()
    assert set(operator_status(here.application, here.name)["condition"]["recovered"]) == {0, 1, 2}
    assert sum("local state: rebuild" in record.getMessage() for record in caplog.records) == 3
    wait_for(driver.claim.operator.flush, "local states are ready")
    wait_for(lambda: published(broker.bootstrap, here.output) == list(range(204)), "every key once")


@pytest.mark.folder_lake
def test_everything_outside_of_the_log_can_be_deleted(world, broker):
    here = world(**HELD)
    produce(broker.bootstrap, here.source, *numbered(*range(8)))
    here.run()
    assert {path.name for path in here.log.parent.parent.iterdir()} == {"lake", "state"}
    shutil.rmtree(here.application.state)
    produce(broker.bootstrap, here.source, *numbered(*range(8, 12)))
    wait_for(here.run().claim.operator.flush, "local states are ready")
    wait_for(lambda: published(broker.bootstrap, here.output) == list(range(12)), "every key once")


@pytest.mark.parametrize("left", [0, 20])
@pytest.mark.folder_lake
def test_a_newest_entry_truncated_by_a_power_failure_stops_and_can_be_moved_away(world, broker, tmp_path, left):
    here = world(**HELD)
    produce(broker.bootstrap, here.source, *numbered(*range(4)))
    here.run()
    entry = entry_path(lake_at(here.log), newest_version(lake_at(here.log)))
    os.truncate(entry, left)
    with pytest.raises(StateError, match="empty or truncated") as told:
        here.driver()
    assert str(told.value.value) == str(entry)
    assert "move it away" in told.value.remedy
    entry.rename(tmp_path / "moved")
    wait_for(here.run().claim.operator.flush, "local states are ready")
    wait_for(lambda: published(broker.bootstrap, here.output) == list(range(4)), "every key once")


def test_a_log_of_a_different_format_stops_and_names_both(world, monkeypatch):
    here = world(**HELD)
    here.driver()
    monkeypatch.setattr(refusals, "FORMAT", 99)
    monkeypatch.setattr(refusals, "READABLE_FORMATS", (98, 99))
    with pytest.raises(StateError, match="a different format") as told:
        here.driver()
    assert "format 99" in told.value.remedy


def test_of_two_drivers_the_older_is_fenced_and_the_newer_continues_with_the_lease(world, broker, running):
    here = world(**AT_ONCE)
    older = running(here)
    older.wait("running")
    newer = running(here)
    wait_for(lambda: _epoch(newer) == 2, "the takeover")
    for step in range(1, 6):  # the older one learns of it by its next commit
        produce(broker.bootstrap, here.source, *numbered(*range(4 * step, 4 * step + PARTITIONS)))
    assert isinstance(older.ended(), Fenced)
    wait_for(lambda: published(broker.bootstrap, here.output) == list(range(4, 24)), "the newer one goes on")
    wait_for(lambda: _leases(here) == [driver_leases.key_of(2)], "the newer one has the only lease")
    assert newer.end() is None
    assert _leases(here) == []


def _leases(here):
    return [found.key for found in lake_at(here.log).list_after(driver_leases.FOLDER)]


def _epoch(driver):
    claim = driver.driver.claim
    return None if isinstance(claim, NotClaimed) else claim.operator.newest.epoch
