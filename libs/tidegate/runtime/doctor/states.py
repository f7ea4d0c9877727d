"""Checks the local states on this machine, and what the last driver here reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding, Findings
from tidegate.runtime.telemetry.driver_status import DriverStatus, DriverStatusFile, FailureState
from tidegate.state.local.header import HeaderFile
from tidegate.state.local.instance import is_instance_held

NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "glusterfs", "ceph", "lustre")
_MOUNTS = Path("/proc/mounts")


@dataclass(frozen=True, kw_only=True)
class LocalStates:
    """An operator's local states on this machine.

    `foreign`: files of other users. `unreadable`: states whose header is damaged. `obsolete`: folders of table ids that
    the operator no longer has. `has_driver`: a driver runs on this machine. `last_status`: what the last driver on this
    machine wrote.
    """

    name: str
    path: Path
    file_system: str = ""
    foreign: Sequence[Path] = ()
    unreadable: Sequence[Path] = ()
    obsolete: Sequence[Path] = ()
    has_driver: bool = False
    last_status: DriverStatus | None = None

    def finding(self, problem: str, value: object, remedy: str) -> Finding:
        """Return a finding about these states."""
        return Finding(about=self.name, problem=problem, value=str(value), remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Mounts:
    """The mounted file systems: the kind of each, by mount point."""

    kinds: Mapping[Path, str] = field(default_factory=dict)

    def of(self, path: Path) -> str:
        """Return the kind of file system that the path is on; "" if unknown."""
        above = [folder for folder in (path, *path.parents) if folder in self.kinds]
        return self.kinds[above[0]] if above else ""


def mounts() -> Mounts:
    """Return the mounted file systems of this machine."""
    rows = (line.split() for line in _MOUNTS.read_text().splitlines())
    return Mounts(kinds={Path(row[1]): row[2] for row in rows})


def collect(application: Application, table_ids: Mapping[str, str]) -> list[LocalStates]:
    """Return the local states of each operator. `table_ids`: the table ids of their logs, where known."""
    folder, mounted = application.state.resolve() / application.application, mounts()
    return [_states(folder / name, name, table_ids.get(name), mounted) for name in application.operators]


def _states(path: Path, name: str, table_id: str | None, mounted: Mounts) -> LocalStates:
    headers = [header for header in path.glob("*/*/header") if os.access(header, os.R_OK)]
    tables = {header.parent.parent for header in headers}
    return LocalStates(
        name=name,
        path=path,
        file_system=mounted.of(path),
        foreign=[file for file in path.glob("**/*") if _is_foreign(file)],
        unreadable=[header.parent for header in headers if HeaderFile(header).read() is None],
        obsolete=sorted(table for table in tables if table_id is not None and table.name != table_id),
        has_driver=is_instance_held(path),
        last_status=DriverStatusFile(path).read(),
    )


def _is_foreign(file: Path) -> bool:
    try:
        return file.lstat().st_uid != os.getuid()
    except FileNotFoundError:  # a running driver has just removed it
        return False


def states_are_owned(states: LocalStates) -> Findings:
    """Check that all files belong to this user."""
    if states.foreign:
        shown = f"{len(states.foreign)} files, among them {states.foreign[0]}"
        remedy = f"run as the user that owns them, or chown -R {os.getuid()} {states.path}"
        yield states.finding("local state belongs to another user", shown, remedy)


def states_are_whole(states: LocalStates) -> Findings:
    """Check that each state's header, which names the commit that it equals, can be read."""
    for state in states.unreadable:
        remedy = f"do nothing: it is rebuilt from the log at the next start; rm -r {state} is safe"
        yield states.finding("a local state is damaged: its header cannot be read", state, remedy)


def states_are_on_a_local_disk(states: LocalStates) -> Findings:
    """Check that the states are on a local disk: locks and mapped files do not work on network file systems."""
    if states.file_system in NETWORK_FILE_SYSTEMS:
        remedy = "set `state` in the file to a folder on a local disk"
        problem = "local state is on a network file system, where locks and mapped files are unreliable"
        yield states.finding(problem, f"{states.file_system}: {states.path}", remedy)


def states_are_of_the_log(states: LocalStates) -> Findings:
    """Check that no states of former logs, which nothing reads any more, take up space."""
    for table in states.obsolete:
        remedy = f"delete it, nothing reads it: rm -r {table}"
        yield states.finding("local state of an earlier log is left over", table, remedy)


def driver_waits_for_no_table(states: LocalStates) -> Findings:
    """Check that no due records wait for a table."""
    if states.has_driver and states.last_status is not None and states.last_status.waits:
        remedy = (
            "start the table's service, or see with tidegate status why it is behind; wait_for_table limits the wait"
        )
        yield states.finding("due records wait for their table", states.last_status.waits, remedy)


def driver_has_not_failed(states: LocalStates) -> Findings:
    """Check that the last driver on this machine runs or was stopped on request: it did not fail and was not killed."""
    last_status = states.last_status
    if last_status is None or states.has_driver:
        return
    if last_status.state in get_args(FailureState):
        remedy = "fix the reported problem, then start the service again; tidegate status explains it"
        yield states.finding(f"the last driver on this machine has ended: {last_status.state}", last_status.why, remedy)
    elif last_status.state != "drained":
        remedy = "start the service again: it continues where the log ends; check with dmesg whether memory ran out"
        yield states.finding("the last driver on this machine was killed", f"while {last_status.state}", remedy)


CHECKS: Sequence[Callable[[LocalStates], Findings]] = (
    states_are_owned,
    states_are_whole,
    states_are_on_a_local_disk,
    states_are_of_the_log,
    driver_waits_for_no_table,
    driver_has_not_failed,
)
