"""The leases of an operator's drivers in the lake, and the instance of a state folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.state import driver_leases
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import DriverLease, Sight
from tidegate.state.local.instance import ended_instance, holding_instance, instance_of, is_instance_held

pytestmark = pytest.mark.fast


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(Place.of(tmp_path))


def lease(epoch: int) -> DriverLease:
    return DriverLease(epoch=epoch, instance="one", host="head", process=7, since=1, takeover_after_ms=6_000)


def test_no_lease_shows_nothing(lake: Lake) -> None:
    assert driver_leases.look(lake, 3) is None


def test_the_newest_lease_shows_its_driver_and_changes_with_each_renewal(lake: Lake) -> None:
    for epoch in (9, 10):
        driver_leases.put(lake, lease(epoch))
    first = driver_leases.look(lake)
    assert first is not None and (first.sight.epoch, first.lease) == (10, lease(10))
    assert driver_leases.look(lake, 10, first) is first
    driver_leases.put(lake, lease(10).renewed(8))
    second = driver_leases.look(lake, 10, first)
    assert second is not None and second.lease == lease(10).renewed(8)
    assert second.sight.epoch == 10 and second.sight.etag != first.sight.etag


def test_a_lease_of_an_older_epoch_than_the_log_s_shows_nothing_of_its_driver(lake: Lake) -> None:
    """A fenced driver that has not noticed it goes on renewing its lease."""
    driver_leases.put(lake, lease(4))
    seen = driver_leases.look(lake, 5)
    assert seen is not None and (seen.sight, seen.lease) == (Sight(5, None), None)


def test_a_lease_that_cannot_be_read_and_strange_names_are_no_error(lake: Lake) -> None:
    driver_leases.put(lake, lease(4))
    lake.put(f"{driver_leases.FOLDER}/notes.txt", b"")
    lake.put(driver_leases.key_of(5), b"{")
    seen = driver_leases.look(lake)
    assert seen is not None and (seen.sight.epoch, seen.lease) == (5, None)


def test_a_driver_deletes_the_leases_of_those_that_it_has_fenced_and_its_own_at_the_end(lake: Lake) -> None:
    for epoch in (3, 4, 5):
        driver_leases.put(lake, lease(epoch))
    driver_leases.delete_below(lake, 4)
    assert [found.key for found in lake.list_after("_driver")] == [driver_leases.key_of(4), driver_leases.key_of(5)]
    driver_leases.end(lake, 4)
    driver_leases.end(lake, 4)
    seen = driver_leases.look(lake)
    assert seen is not None and seen.sight.epoch == 5


# ---- the instance of a state folder


def test_a_process_that_starts_again_on_a_state_folder_is_the_same_instance(tmp_path: Path) -> None:
    with holding_instance(tmp_path / "state") as first:
        assert is_instance_held(tmp_path / "state")
        assert ended_instance(tmp_path / "state") is None
    assert ended_instance(tmp_path / "state") == instance_of(tmp_path / "state") == first
    assert not is_instance_held(tmp_path / "state")
    with holding_instance(tmp_path / "state") as second:
        assert first == second


def test_a_second_process_on_the_same_state_folder_is_another_instance(tmp_path: Path) -> None:
    with holding_instance(tmp_path) as first, holding_instance(tmp_path) as second:
        assert first != second
    with holding_instance(tmp_path) as third:
        assert third == first


def test_a_folder_that_was_deleted_is_another_instance(tmp_path: Path) -> None:
    with holding_instance(tmp_path / "state") as first:
        (tmp_path / "state" / "instance").unlink()
        assert not is_instance_held(tmp_path / "state")
    with holding_instance(tmp_path / "state") as second:
        assert first != second


def test_looking_for_an_instance_leaves_no_trace(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert (ended_instance(state), instance_of(state), is_instance_held(state)) == (None, None, False)
    assert not state.exists()


def test_a_folder_that_cannot_be_written_is_an_instance_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with holding_instance(tmp_path / "file") as one, holding_instance(tmp_path / "file") as other:
        assert one != other


@pytest.mark.process
def test_a_killed_process_no_longer_has_its_instance(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\nfrom tidegate.state.local.instance import holding_instance\n"
        "with holding_instance(pathlib.Path(sys.argv[1])) as it: print(it, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    held = process.stdout.readline().strip()
    assert ended_instance(tmp_path) is None
    process.kill()
    process.wait()
    assert ended_instance(tmp_path) == held
