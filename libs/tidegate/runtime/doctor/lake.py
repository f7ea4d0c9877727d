"""Checks the disks of lake and local state, and the operator logs in the lake."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.naming import MIXED_FOLDER
from tidegate.control.ledger import OperatorKey
from tidegate.operators.registry import columns_of
from tidegate.runtime.batch_loop.earlier_runs import (
    PROBLEM,
    REMEDY,
    newest_in_database,
    traces_in_database,
    traces_of_states,
)
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding, Findings, of_error, roughly
from tidegate.state import leases
from tidegate.state.alignment_decisions import Lease, live_leases
from tidegate.state.delta_log.log_entries import DELTA_LOG
from tidegate.state.delta_log.log_version import LogSize
from tidegate.state.delta_log.operator_log import (
    CHECKPOINT_EVERY,
    CHECKPOINT_FILES_PER_ENTRY,
    OperatorLog,
)
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import STAGING
from tidegate.state.protocol_decisions import MAX_BATCHES
from tidegate.state.upkeep.cleanup import MIN_WINDOW_MS
from tidegate.state.upkeep.orphans import Orphans, orphans

SMALLEST_FREE = 0.05
"""Smallest share of a disk that must be free; or SMALLEST_FREE_BYTES, if that is less."""
SMALLEST_FREE_BYTES = 2**30
OVERDUE_FACTOR = 4
"""A checkpoint or compaction is overdue after this many times the usual number of entries or batches."""
CLOCK_AHEAD_MS = 60_000
"""Tolerance for clock differences: how far the newest commit may lie in the future."""

NO_FILES, NO_ORPHANS = LogSize(files=0, state_rows=0), Orphans(files=0, bytes=0)


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A folder of the application (`role`: lake or state), and the free and total bytes of its disk.

    For a folder that does not exist, `writable` and the bytes are those of its closest existing parent.
    """

    role: str
    path: Path
    writable: bool
    free: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Log:
    """An operator's log.

    `wrong`: why it cannot be read. `entries`: number of Delta log entries since the newest checkpoint. `leases`: those
    of the table's readers, by reader.
    """

    name: str
    place: Place
    writable: bool = True
    wrong: TidegateError | None = None
    newest: BatchMeta | None = None
    size: LogSize = NO_FILES
    entries: int = 0
    orphans: Orphans = NO_ORPHANS
    leases: Mapping[str, Lease] = field(default_factory=dict)
    rewind_window_ms: int = 0
    now_ms: int = 0

    def finding(self, problem: str, value: object, remedy: str) -> Finding:
        """Return a finding about this log."""
        return Finding(about=self.name, problem=problem, value=str(value), remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class LostLog:
    """An operator without a log, and the traces that an earlier run of it has left outside of the lake."""

    name: str
    place: Place
    traces: Sequence[str]


def collect_disks(application: Application) -> list[Disk]:
    """Return the disks of lake and local state; a lake in an object store is on no disk."""
    lake = [_disk("lake", application.lake.folder)] if application.lake.is_local else []
    return [*lake, _disk("state", application.state)]


def _disk(role: str, path: Path) -> Disk:
    there = next(folder for folder in (path, *path.resolve().parents) if folder.exists())
    usage = shutil.disk_usage(there)
    return Disk(
        role=role,
        path=path,
        writable=os.access(there, os.W_OK | os.X_OK),
        free=usage.free,
        total=usage.total,
    )


def collect_logs(application: Application) -> dict[str, Log]:
    """Return the logs by operator; operators without a log are left out."""
    found = {name: _log(application, name) for name in application.operators}
    return {name: log for name, log in found.items() if log is not None}


def _log(application: Application, name: str) -> Log | None:
    place, now_ms = application.lake / name, SYSTEM_CLOCK.now_ms()
    try:
        lake = open_lake(place)
        if not has_version(lake, None):
            return None
        schema = log_schema(columns_of(application.operators[name]))
        log = OperatorLog.open(lake, name, schema, create=False, steps_change=True)
        return Log(
            name=name,
            place=place,
            writable=_writable(lake),
            newest=log.newest(),
            size=log.size,
            entries=log.entries_since_checkpoint,
            orphans=orphans(log, clock_ms=now_ms),
            leases=leases.read(lake, now_ms),
            rewind_window_ms=application.operators[name].rewind_window,
            now_ms=now_ms,
        )
    except TidegateError as error:
        return Log(name=name, place=place, wrong=error)


def _writable(log: Lake) -> bool:
    """Return whether this user may write: to each folder of the log, or an object beside it, which is deleted again."""
    if log.place.is_local:
        folder = log.place.folder
        folders = (folder, folder / DELTA_LOG, *folder.glob(MIXED_FOLDER), *folder.glob("kind=*/partition=*"))
        return all(os.access(each, os.W_OK | os.X_OK) for each in folders)
    probe = f"{STAGING}/{secrets.token_hex(8)}"
    try:
        log.put(probe, b"written by tidegate doctor")
        log.delete([probe])
    except UserError:
        return False
    return True


def disk_can_be_written(disk: Disk) -> Findings:
    """Check that this user may write to the folder."""
    if not disk.writable:
        remedy = f"make the service's user (id {os.getuid()}) the owner: chown -R {os.getuid()} {disk.path}"
        problem = f"this user cannot write to the {disk.role} folder"
        yield Finding(about=disk.role, problem=problem, value=str(disk.path), remedy=remedy)


def disk_has_room(disk: Disk) -> Findings:
    """Check that the disk has room for the next batches, and for the compaction that would free space."""
    if disk.free < min(SMALLEST_FREE * disk.total, SMALLEST_FREE_BYTES):
        value = f"{disk.free / 2**20:,.0f} MiB of {disk.total / 2**20:,.0f} MiB free at {disk.path}"
        remedy = "free space there, move it to a larger disk, or shorten keep_output and rewind_window"
        yield Finding(
            about=disk.role, problem=f"the disk of the {disk.role} is nearly full", value=value, remedy=remedy
        )


def collect_lost_logs(application: Application) -> list[LostLog]:
    """Return the operators that have run before but have no log in the lake."""
    found = []
    for name in application.operators:
        place, key = application.lake / name, OperatorKey(application.application, name)
        traces = [*traces_of_states(application.state / application.application, name)]
        with suppress(TidegateError):  # an unreachable database is a finding of its own
            traces += traces_in_database(newest_in_database(application.control_database, key))
        with suppress(TidegateError):  # a damaged log is a finding of its own
            if traces and not has_version(open_lake(place), None):
                found.append(LostLog(name=name, place=place, traces=traces))
    return found


def log_is_there(lost: LostLog) -> Findings:
    """Report the lost log of an operator that has run before, as when the lake is not mounted."""
    value = f"{lost.place}; {'; '.join(lost.traces)}"
    yield Finding(about=lost.name, problem=f"{lost.name} {PROBLEM}", value=value, remedy=REMEDY)


def log_is_sound(log: Log) -> Findings:
    """Check that the log can be opened: it is undamaged, of this format and operator, and has no other writer."""
    if log.wrong is not None:
        yield of_error(log.name, log.wrong)


def log_can_be_written(log: Log) -> Findings:
    """Check that this user may commit to the log."""
    if not log.writable:
        owner = f"make the service's user (id {os.getuid()}) the owner: chown -R {os.getuid()} {log.place}"
        remedy = owner if log.place.is_local else "let the credentials of this machine write and delete objects there"
        yield log.finding("the operator log cannot be written", log.place, remedy)


def log_has_checkpoints(log: Log) -> Findings:
    """Check that the log has a recent checkpoint, so that its readers replay few entries."""
    usual = CHECKPOINT_EVERY + log.size.files // CHECKPOINT_FILES_PER_ENTRY
    if log.entries > OVERDUE_FACTOR * usual:
        remedy = (
            "run the operator, which writes a checkpoint with its next commit; check that it may write to _delta_log"
        )
        yield log.finding("the log has had no checkpoint for a long time", f"{log.entries:,} entries", remedy)


def log_is_compacted(log: Log) -> Findings:
    """Check that the log is compacted, so that it does not grow without bound."""
    if log.newest is not None and (batches := log.newest.batch - log.newest.compacted) > OVERDUE_FACTOR * MAX_BATCHES:
        shown = f"{batches:,} batches, {log.size.files:,} files"
        remedy = f"run tidegate compact FILE --operator {log.name}; the service's log says why it does not compact"
        yield log.finding("the log has not been compacted for a long time", shown, remedy)


def files_have_commits(log: Log) -> Findings:
    """Check that orphaned data files, which no commit names, are removed in time."""
    if log.orphans.files:
        shown = f"{log.orphans.files:,} files, {log.orphans.bytes / 2**20:,.1f} MiB"
        remedy = f"run tidegate compact FILE --operator {log.name}: each compaction cleans one folder"
        yield log.finding("files of old failed attempts are left over", shown, remedy)


def readers_are_there(log: Log) -> Findings:
    """Check that every registered reader of the table still renews its lease."""
    counting = live_leases(log.leases, log.now_ms, max(log.rewind_window_ms, MIN_WINDOW_MS))
    for reader in sorted(log.leases.keys() - counting.keys()):
        shown = f"{reader}, for {roughly(log.now_ms - log.leases[reader].clock)}"
        remedy = f"start the join; or, if it is gone for good, remove {log.place / leases.key_of(reader)}"
        yield log.finding("the table no longer waits for a join that is not running", shown, remedy)


def clock_has_not_gone_back(log: Log) -> Findings:
    """Check that the newest commit does not lie in the future of this machine's clock."""
    if log.newest is not None and log.newest.clock > log.now_ms + CLOCK_AHEAD_MS:
        ahead = roughly(log.newest.clock - log.now_ms)
        remedy = "correct this machine's clock (NTP), which idle_after and max_ahead depend on"
        yield log.finding("the newest commit is in the future of this machine's clock", ahead, remedy)


DISK_CHECKS: Sequence[Callable[[Disk], Findings]] = (disk_can_be_written, disk_has_room)
CHECKS: Sequence[Callable[[Log], Findings]] = (
    log_is_sound,
    log_can_be_written,
    log_has_checkpoints,
    log_is_compacted,
    files_have_commits,
    readers_are_there,
    clock_has_not_gone_back,
)
