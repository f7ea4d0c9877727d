"""What the doctor finds wrong with local states, planted in folders."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runtime.miniature import NAME, application
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor import states
from tidegate.runtime.doctor.states import CHECKS, LocalStates, Mounts
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state.local.instance import holding_instance
from tidegate.state.local.local_state import LocalState

pytestmark = pytest.mark.fast


class World:
    """An application on this machine, with a local state of partition 0 of table `now`."""

    def __init__(self, folder: Path) -> None:
        self.application: Application = application(folder)
        self.root = self.application.state / self.application.application
        self.path = self.root / NAME
        self.state("now")

    def state(self, table_id: str) -> Path:
        with LocalState.lock(self.root, 0, operator=NAME, table_id=table_id, token=(1, 1)) as local:
            local.begin(1, 1, "a")
            return local.folder

    def found(self) -> list[tuple[str, str, str]]:
        [seen] = states.collect(self.application, {NAME: "now"})
        return told(seen)


def told(seen: LocalStates) -> list[tuple[str, str, str]]:
    return [(each.problem, each.value, each.remedy) for check in CHECKS for each in check(seen)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_intact_states_have_no_finding(world: World, tmp_path: Path) -> None:
    assert world.found() == []
    [new] = states.collect(application(tmp_path / "new"), {})
    assert told(new) == []


def test_a_damaged_header_is_reported_with_its_folder(world: World) -> None:
    header = world.path / "now" / "0" / "header"
    header.write_bytes(b"\xff" * header.stat().st_size)
    [(problem, value, remedy)] = world.found()
    assert "damaged" in problem
    assert value == str(header.parent)
    assert "rebuilt from the log" in remedy


def test_states_of_a_former_log_are_reported(world: World) -> None:
    left = world.state("before").parent
    [(problem, value, remedy)] = world.found()
    assert "left over" in problem
    assert (value, remedy) == (str(left), f"delete it, nothing reads it: rm -r {left}")


def test_files_of_a_different_user_are_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: user)
    [(problem, value, remedy)] = world.found()
    assert "another user" in problem
    assert "files, among them" in value
    assert f"chown -R {user} {world.path}" in remedy


def test_a_network_file_system_is_reported(world: World) -> None:
    [seen] = states.collect(world.application, {})
    [(problem, value, remedy)] = told(replace(seen, file_system="nfs4"))
    assert "network file system" in problem
    assert value == f"nfs4: {world.path}"
    assert "`state` in the file" in remedy


def test_a_path_belongs_to_the_file_system_of_the_nearest_mount() -> None:
    mounted = Mounts(kinds={Path("/"): "ext4", Path("/data"): "nfs4", Path("/data/local"): "xfs"})
    assert mounted.of(Path("/data/state")) == "nfs4"
    assert mounted.of(Path("/data/local/state")) == "xfs"
    assert mounted.of(Path("/database")) == "ext4"
    assert states.mounts().of(Path("/proc/self")) == "proc"


@pytest.mark.parametrize("state", ["fenced", "refused", "stopped", "bound reached"])
def test_a_driver_that_ended_by_itself_is_reported_with_its_reason(world: World, state: str) -> None:
    DriverStatusFile(world.path).write(state, "the operator log has different columns")  # type: ignore[arg-type]
    [(problem, value, remedy)] = world.found()
    assert problem.endswith(state)
    assert value == "the operator log has different columns"
    assert "start the service again" in remedy


def test_a_killed_driver_is_reported_and_a_running_or_drained_one_is_not(world: World) -> None:
    DriverStatusFile(world.path).write("running")
    assert [problem for problem, _, _ in world.found()] == ["the last driver on this machine was killed"]
    with holding_instance(world.path):
        assert world.found() == []
    DriverStatusFile(world.path).write("starting")
    file = DriverStatusFile(world.path)
    with file.recording_run():
        pass
    assert world.found() == []


def test_due_records_that_wait_for_their_table_are_reported_while_the_driver_runs(world: World) -> None:
    DriverStatusFile(world.path).write_waits({"facts": [0, 2]})
    assert "due records wait for their table" not in [problem for problem, _, _ in world.found()]
    with holding_instance(world.path):
        [(problem, value, remedy)] = world.found()
    assert (problem, "facts" in value, "0, 2" in value) == ("due records wait for their table", True, True)
    assert "start the table's service" in remedy
