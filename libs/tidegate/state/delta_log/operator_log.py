"""The operator log: one Delta table per operator, one commit per batch, and the fence.

A handle stays at its own last commit, so that a rival's commit is a conflict and never a surprise. A commit is one file
that is put where none may be; its cost does not depend on the length of the log, because nothing is listed and the
table is kept in memory. delta-rs makes the table.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from tidegate.contracts.errors import EngineError, Fenced, Outdated, StateError, Unavailable
from tidegate.contracts.naming import app_transaction_id
from tidegate.contracts.schema import FORMAT, PARTITION_COLUMNS, READABLE_FORMATS, BatchMeta
from tidegate.state import disk
from tidegate.state.decisions import Entry, Verdict, judge_winners
from tidegate.state.delta_log.actions import (
    Action,
    add,
    commit_info,
    remove,
    transaction,
)
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.data_files import (
    ANY_BATCH,
    DataFile,
    delete_files,
    read_files,
    require_whole,
)
from tidegate.state.delta_log.log_entries import (
    DELTA_LOG,
    entries_above,
    entry_path,
    newest_entries,
    newest_version,
    put,
    require_there,
)
from tidegate.state.delta_log.metadata import Newest, newest_metadata
from tidegate.state.delta_log.snapshot import Snapshot, load

CHECKPOINT_EVERY = 64
"""Commits between two checkpoints, at the least: what a reader replays."""

CHECKPOINT_FILES_PER_ENTRY = 64
"""A checkpoint of many files waits for more commits: it may cost each of them as much as so many files do."""

RETRY_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Waits before each try of the identical commit while its outcome is unclear."""

_FORMAT_KEY = "tidegate.format"
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",  # a foreign VACUUM spares a running attempt
    _FORMAT_KEY: str(FORMAT),
}
_PROTOCOL = (1, 2)
"""The newest reader and writer version that is understood here."""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What the log has now: all data files, and the rows of kind `state` in them."""

    files: int
    state_rows: int


class OperatorLog:
    """A handle on an operator's log, at one version."""

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self.path = path
        self.schema = pa.schema(Schema.from_json(snapshot.metadata["schemaString"]))
        self._snapshot = snapshot
        self._newest: Newest | None = None

    @classmethod
    def open(cls, path: Path, operator: str, schema: pa.Schema, *, create: bool) -> OperatorLog:
        """A handle at the newest version, for the driver; with `create` the table exists afterwards.

        StateError, with the way on, for: no log, a damaged one, one of another format, operator or schema, and one that
        somebody else changed. Unavailable while the lake fails.
        """
        with disk.disk_errors(path):
            newest = newest_version(path)
            if newest is None and create:
                _create(path, operator, schema)
                newest = newest_version(path)
            if newest is None:
                raise StateError("there is no operator log", value=path, remedy="run the operator once, or mend `lake`")
            _refuse_foreign_changes(path, newest_entries(path, newest))
            log = cls(path, load(path, newest))
        _refuse_another(path, log._snapshot, operator, log.schema, schema)
        log.newest()
        return log

    @classmethod
    def at(cls, path: Path, version: int | None) -> OperatorLog:
        """A handle at that version (None: the newest), for reading: cheap enough for every task that recovers."""
        with disk.disk_errors(path):
            wanted = newest_version(path) if version is None else version
            return cls(path, load(path, -1 if wanted is None else wanted))

    @property
    def operator(self) -> str:
        """The operator whose log it is."""
        return str(self._snapshot.metadata["name"])

    @property
    def version(self) -> int:
        """The Delta version that the handle stands at."""
        return self._snapshot.version

    def has_successor(self) -> bool:
        """True when the log has an entry above the handle's version; one look at one name."""
        with disk.disk_errors(self.path):
            return entry_path(self.path, self.version + 1).exists()

    @property
    def table_id(self) -> str:
        """Delta's id of the table: another one means another log, whatever its path."""
        return str(self._snapshot.metadata["id"])

    @property
    def format(self) -> int:
        """The version of the format that the log is in."""
        return int(self._snapshot.metadata["configuration"][_FORMAT_KEY])

    @property
    def tally(self) -> Tally:
        """How much the log holds at the handle's version."""
        return Tally(files=len(self._snapshot.files), state_rows=self._snapshot.state_rows)

    @property
    def entries_since_checkpoint(self) -> int:
        """How many entries a reader of the handle's version replays."""
        return self.version - self._snapshot.checkpoint

    def newest(self) -> BatchMeta | None:
        """The metadata of the newest batch at the handle's version; None before the first claim."""
        if self._newest is None:
            self._newest = self._read_newest()
        return None if self._newest is None else self._newest.meta

    def has_file(self, path: str) -> bool:
        """True when the table has the data file at the handle's version."""
        return path in self._snapshot.files

    def data_files(
        self, kind: str, partition: int | None = None, *, after_batch: int = -1, up_to: int = ANY_BATCH
    ) -> list[DataFile]:
        """Return the files, at the handle's version, that may have rows of batches above `after_batch`, and not above
        `up_to`; by partition and batch.
        """
        found = (
            file
            for file in self._snapshot.files.values()
            if file.kind == kind
            and partition in (None, file.partition)
            and file.max_batch > after_batch
            and file.min_batch <= up_to
        )
        return sorted(found, key=lambda file: (file.partition, file.min_batch))

    def read(
        self,
        kind: str,
        partition: int | None = None,
        after_batch: int = -1,
        columns: Sequence[str] | None = None,
        *,
        up_to: int = ANY_BATCH,
    ) -> pa.Table:
        """Return the rows of the kind above `after_batch` and not above `up_to`, by partition, batch and seq.

        All columns of the log when `columns` is None.
        """
        files = self.data_files(kind, partition, after_batch=after_batch, up_to=up_to)
        return read_files(self.path, files, self.schema, columns, after_batch=after_batch, up_to=up_to)

    def at_rest(self) -> OperatorLog:
        """Return a handle that stays at this version, for a thread beside the one that commits."""
        handle = OperatorLog(self.path, replace(self._snapshot, files=dict(self._snapshot.files)))
        handle._newest = self._newest
        return handle

    def batches(self, kind: str, partition: int, *, after_batch: int = -1) -> list[int]:
        """The batches above `after_batch` that have rows of the kind in the partition, ascending."""
        found = pc.unique(self.read(kind, partition, after_batch, ["batch"]).column("batch"))
        return sorted(found.to_pylist())

    def commit(
        self,
        meta: BatchMeta,
        files: Sequence[DataFile],
        replaces: Sequence[DataFile] = (),
        records: Sequence[DataFile] = (),
    ) -> None:
        """The batch is committed, durable, and the handle stands at it.

        `replaces`: the files whose rows `files` hold again; such files change no data for readers of the log.
        `records`: files of a compaction whose rows are new, as no batch has written them before.
        Fenced: a newer driver owns the operator. StateError: somebody else changed the log. Outdated: a file of
        `replaces` is gone, as after a foreign `OPTIMIZE`; nothing is committed. EngineError: a file is not whole here,
        a rival won a race, or the outcome is unclear; the driver starts over with a claim, which settles each. After
        any of them the handle is not to be used. A failure before the entry is put leaves no files; but for that and
        Outdated the attempt's files are not to be deleted: they may be committed.
        """
        require_there(self.path)
        self._refuse_reuse(meta)
        try:
            require_whole(self.path, [*files, *records])
            self._checkpoint_if_due()
        except Exception:  # nothing was put, so these are certainly of no commit
            delete_files(self.path, meta.batch, meta.attempt, [*files, *records])
            raise
        complete = self._has_to_be_complete(meta)
        document = meta.to_json() if complete else meta.changes_to_json(self._known.meta, self._known.base)
        added = [add(file, changes_data=not replaces) for file in files]
        added += [add(file, changes_data=True) for file in records]
        removed = [remove(file, meta.clock) for file in replaces]
        actions = [commit_info(meta, document), transaction(meta), *self._upgrade(), *added, *removed]
        version = self._commit_until_clear(actions, meta, replaces)
        self._stand_at(version, actions)
        self._newest = Newest(meta, meta.batch, version) if complete else self._known._replace(meta=meta)

    def _has_to_be_complete(self, meta: BatchMeta) -> bool:
        """A driver's first commit, a compaction, and each commit of which a checkpoint is going to be written.

        So a version that can be read has its complete metadata behind no checkpoint.
        """
        newest = self.newest()
        return (
            newest is None
            or meta.epoch != newest.epoch
            or meta.action == "compaction"
            or self._needs_checkpoint(self.version + 1)
        )

    @property
    def _known(self) -> Newest:
        if self._newest is None:
            raise AssertionError("changes against no metadata")
        return self._newest

    def _upgrade(self) -> list[Action]:
        """Return the change of the table's format to the one that is written, where it is an earlier one."""
        metadata = self._snapshot.metadata
        if self.format == FORMAT:
            return []
        return [{"metaData": {**metadata, "configuration": {**metadata["configuration"], _FORMAT_KEY: str(FORMAT)}}}]

    def _refuse_reuse(self, meta: BatchMeta) -> None:
        newest = self.newest()
        if newest is not None and meta.batch <= newest.batch:
            raise StateError("a batch number is never used again", value=f"{meta.batch}, after {newest.batch}")

    def _checkpoint_if_due(self) -> None:
        """Before a commit, so that a failure here is no doubt about the commit."""
        snapshot = self._snapshot
        if self._newest is None or self._newest.version != self.version or not self._needs_checkpoint(self.version):
            return
        with disk.disk_errors(self.path):
            write_checkpoint(self.path, self.version, snapshot.actions())
        snapshot.checkpoint = self.version

    def _needs_checkpoint(self, version: int) -> bool:
        """Return whether a reader of the version would have so many entries to replay that a checkpoint is worth it."""
        snapshot = self._snapshot
        wait = CHECKPOINT_EVERY + len(snapshot.files) // CHECKPOINT_FILES_PER_ENTRY
        return version - max(snapshot.checkpoint, 0) >= wait

    def _commit_until_clear(self, actions: Sequence[Action], meta: BatchMeta, replaces: Sequence[DataFile]) -> int:
        """The version at which the commit is: the identical commit is tried until it is taken or refused.

        A listing would decide nothing, because a write can land later. Once a first try has landed, the next conflicts.
        """
        unclear: Exception | None = None
        for pause_s in RETRY_PAUSES_S:
            time.sleep(pause_s)
            try:
                return self._try_commit(actions, meta, replaces)
            except OSError as error:
                unclear = error
        raise Unavailable(
            "the lake does not say whether the batch is committed",
            value=f"batch {meta.batch}, attempt {meta.attempt}: {unclear}",
            remedy="see that the lake can be written; the driver starts over with a claim, which settles it",
        ) from unclear

    def _try_commit(self, actions: Sequence[Action], meta: BatchMeta, replaces: Sequence[DataFile]) -> int:
        self._refuse_outdated(meta, replaces)
        while not put(self.path, self.version + 1, actions):
            above = entries_above(self.path, self.version)
            verdict = judge_winners(above, meta.attempt, meta.epoch)
            if verdict is Verdict.COMMITTED:
                return next(entry.version for entry in above if entry.attempt == meta.attempt)
            if verdict is not Verdict.TRY_ABOVE:
                raise _error(verdict, self.path, meta, above)
            self._snapshot.catch_up(self.path, above[-1].version)
            self._refuse_outdated(meta, replaces)
        return self.version + 1

    def _refuse_outdated(self, meta: BatchMeta, replaces: Sequence[DataFile]) -> None:
        """Raise Outdated unless the table still has each file that the commit replaces; before every put.

        The entry is put right above the handle's version, so nothing can come in between. Earlier tries of the commit
        cannot land any more: every version up to the handle's is taken, by entries that are not this attempt's.
        """
        gone = [file.path for file in replaces if not self.has_file(file.path)]
        if gone:
            raise Outdated(
                "files that a compaction was to replace are no longer in the log (a foreign OPTIMIZE?)",
                value=f"batch {meta.batch} in {self.path}: {len(gone)} files, such as {gone[0]}",
                remedy="none is needed: nothing was committed, and the compaction is planned again",
            )

    def _stand_at(self, version: int, actions: Sequence[Action]) -> None:
        with disk.disk_errors(self.path):
            self._snapshot.catch_up(self.path, version - 1)
            disk.sync(self.path / DELTA_LOG)
        self._snapshot.apply(version, actions)

    def _read_newest(self) -> Newest | None:
        committed = self._snapshot.transactions.get(app_transaction_id(self.operator))
        if committed is None:
            return None
        with disk.disk_errors(self.path):
            newest = newest_metadata(self.path, self.version)
        if newest is None or newest.meta.batch != committed["version"]:
            raise StateError(
                "the log lacks the metadata of its newest batch",
                value=f"batch {committed['version']} in {self.path}",
                remedy="bring the log's _delta_log back from a copy",
            )
        return newest


def _create(path: Path, operator: str, schema: pa.Schema) -> None:
    """The table exists, at protocol 1/2, which every Delta reader knows; Delta mints its id."""
    disk.make_folder(path, synced=True)
    try:
        DeltaTable.create(
            str(path),
            schema=Schema.from_arrow(schema),
            mode="ignore",
            partition_by=PARTITION_COLUMNS,
            name=operator,
            configuration=_CONFIGURATION,
            raise_if_key_not_exists=False,
        )
    except DeltaError as error:
        raise Unavailable(f"the lake failed: {error}", value=path, remedy="look at the lake") from error
    for written in (entry_path(path, 0), path / DELTA_LOG, path):
        disk.sync(written)


def _refuse_foreign_changes(path: Path, entries: Sequence[Entry]) -> None:
    foreign = [entry.version for entry in entries if entry.foreign_change]
    if foreign:
        raise _foreign_change(path, foreign)


def _foreign_change(path: Path, foreign: Sequence[int]) -> StateError:
    return StateError(
        "somebody else changed data in the operator log (a RESTORE, DELETE, UPDATE or append)",
        value=", ".join(str(entry_path(path, version)) for version in foreign),
        remedy="stop the operator, move those entries and all newer ones out of _delta_log, and start again; "
        "or begin a new log in another lake",
    )


def _refuse_another(path: Path, snapshot: Snapshot, operator: str, found: pa.Schema, expected: pa.Schema) -> None:
    needed = (snapshot.protocol["minReaderVersion"], snapshot.protocol["minWriterVersion"])
    if needed[0] > _PROTOCOL[0] or needed[1] > _PROTOCOL[1]:
        remedy = "somebody raised it (ALTER TABLE): move that entry and all newer ones out of _delta_log"
        raise StateError("the operator log asks for another Delta protocol", value=f"{needed} in {path}", remedy=remedy)
    if (written := snapshot.metadata["configuration"].get(_FORMAT_KEY)) not in map(str, READABLE_FORMATS):
        remedy = f"this program reads format {FORMAT}: use the release that wrote the log, or migrate it"
        raise StateError("the operator log has another format", value=f"{written} in {path}", remedy=remedy)
    if (name := snapshot.metadata["name"]) != operator:
        remedy = f"give {operator} a lake or a name of its own"
        raise StateError("the log belongs to another operator", value=f"{name} in {path}", remedy=remedy)
    if not found.equals(expected):
        different = sorted({field.name for field in set(found) ^ set(expected)})
        remedy = "an operator's kind and columns are fixed in its log: give the changed operator a new name"
        raise StateError("the operator log has other columns", value=f"{different} in {path}", remedy=remedy)


def _error(verdict: Verdict, path: Path, meta: BatchMeta, above: Sequence[Entry]) -> Exception:
    shown = f"batch {meta.batch} of epoch {meta.epoch} in {path}"
    if verdict is Verdict.FENCED:
        remedy = "none is needed if the other driver was meant; otherwise stop that one"
        return Fenced("a newer driver has claimed the operator; this one stops", value=shown, remedy=remedy)
    foreign = [entry.version for entry in above if entry.foreign_change]
    if foreign:
        return _foreign_change(path, foreign)
    if verdict is Verdict.STOP:
        return StateError("two drivers of one epoch have committed to the same log", value=shown)
    return EngineError("another commit won the race; the driver starts over", value=shown)
