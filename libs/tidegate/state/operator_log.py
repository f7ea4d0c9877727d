"""The operator log: one Delta table per operator, one commit per batch, and the fence.

May import: deltalake, pyarrow, contracts, state. A handle stays at its own last commit, so that a rival's commit is a
conflict and never a surprise. `update_incremental()` must not be used on it: it pulls a rival's commit in, and then
both drivers go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tidegate.contracts.errors import EngineError, Fenced, StateError, Unavailable
from tidegate.contracts.naming import COMMIT_METADATA_KEY, app_transaction_id
from tidegate.contracts.schema import FORMAT, META_PARTITION, PARTITION_COLUMNS, BatchMeta
from tidegate.state import disk
from tidegate.state.data_files import DataFile, read_files, write_rows
from tidegate.state.decisions import Entry, Verdict, judge_winners
from tidegate.state.log_entries import DELTA_LOG, entries_above, entry_path, newest_entries, versions

CHECKPOINT_EVERY = 32
"""Commits between two log checkpoints: without them a commit and its load read every entry since the first."""

RETRY_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Waits before each try of the identical commit while its outcome is unclear."""

_FORMAT_KEY = "tidegate.format"
_CONFIGURATION = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 hours",  # tombstones serve nobody here, and weigh on checkpoints
    _FORMAT_KEY: str(FORMAT),
}
_DEFINITE = ("Failed to commit transaction", "Tried committing existing table version")


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What the log has now: all data files, and the rows of kind `state` in them."""

    files: int
    state_rows: int

    def after(self, files: Sequence[DataFile], replaces: Sequence[DataFile]) -> Tally:
        """The tally when the files are added and the replaced ones gone."""
        return Tally(
            files=self.files + len(files) - len(replaces),
            state_rows=self.state_rows + _state_rows(files) - _state_rows(replaces),
        )


def _state_rows(files: Sequence[DataFile]) -> int:
    return sum(file.rows for file in files if file.kind == "state")


class OperatorLog:
    """A handle on an operator's log, at one version."""

    def __init__(self, path: Path, operator: str, table: DeltaTable) -> None:
        self.path = path
        self.operator = operator
        self.schema = pa.schema(table.schema())
        self._table = table
        self._newest: BatchMeta | None = None
        self._tally: Tally | None = None

    @classmethod
    def open(cls, path: Path, operator: str, schema: pa.Schema, *, create: bool) -> OperatorLog:
        """A handle at the newest version, for the driver; with `create` the table exists afterwards.

        StateError, with the way on, for: no log, a damaged one, one of another format, operator or schema, and one that
        somebody else changed. Unavailable while the lake fails.
        """
        with _engine_errors(path):
            if create and not DeltaTable.is_deltatable(str(path)):
                _create(path, operator, schema)
            found = versions(path)
            if not found:
                raise StateError("there is no operator log", value=path, remedy="run the operator once, or mend `lake`")
            _refuse_foreign_changes(path, newest_entries(path, found[-1]))
        log = cls(path, operator, _load(path, None))
        if log.version != found[-1]:
            raise StateError("the log's newest version is not the one that its entries show", value=path)
        _refuse_another(log._table, operator, log.schema, schema)
        log._newest = log._read_newest()
        return log

    @classmethod
    def at(cls, path: Path, version: int | None) -> OperatorLog:
        """A handle at that version (None: the newest), for reading: cheap enough for every task that recovers."""
        table = _load(path, version)
        return cls(path, table.metadata().name, table)

    @property
    def version(self) -> int:
        """The Delta version that the handle stands at."""
        return int(self._table.version())

    @property
    def table_id(self) -> str:
        """Delta's id of the table: another one means another log, whatever its path."""
        return str(self._table.metadata().id)

    @property
    def tally(self) -> Tally:
        """How much the log holds at the handle's version."""
        if self._tally is None:
            self._tally = Tally(files=0, state_rows=0).after(self.all_files(), ())
        return self._tally

    def newest(self) -> BatchMeta | None:
        """The metadata of the newest batch at the handle's version; None before the first claim."""
        if self._newest is None:
            self._newest = self._read_newest()
        return self._newest

    def data_files(self, kind: str, partition: int | None = None, *, after_batch: int = -1) -> list[DataFile]:
        """The files, at the handle's version, that may have rows above `after_batch`; by partition and batch."""
        condition = pc.field("partition.kind") == kind
        if partition is not None:
            condition &= pc.field("partition.partition") == partition
        return [file for file in self._files(condition) if file.max_batch > after_batch]

    def all_files(self) -> list[DataFile]:
        """Every data file at the handle's version."""
        return self._files(None)

    def read(
        self, kind: str, partition: int | None = None, after_batch: int = -1, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of the kind above `after_batch`, by partition, batch and seq; all columns of the log when None."""
        files = self.data_files(kind, partition, after_batch=after_batch)
        return read_files(self.path, files, self.schema, columns, after_batch=after_batch)

    def batches(self, kind: str, partition: int, *, after_batch: int = -1) -> list[int]:
        """The batches above `after_batch` that have rows of the kind in the partition, ascending."""
        found = pc.unique(self.read(kind, partition, after_batch, ["batch"]).column("batch"))
        return sorted(found.to_pylist())

    def commit(self, meta: BatchMeta, files: Sequence[DataFile], replaces: Sequence[DataFile] = ()) -> None:
        """The batch is committed, durable, and the handle stands at it.

        `replaces`: the files whose rows `files` hold again; such a commit changes no data for readers of the log.
        Fenced: a newer driver owns the operator. StateError: somebody else changed the log. EngineError: a rival won a
        race, or the outcome is unclear; the driver starts over with a claim, which settles either. After any of them
        the handle is not to be used, and the attempt's files are not to be deleted: they may be committed.
        """
        require_there(self.path)
        self._refuse_reuse(meta)
        self._checkpoint_if_due()
        row = write_meta(self.path, meta)
        changes_data = not replaces
        actions = [_add(self.path, row, True), *(_add(self.path, file, changes_data) for file in files)]
        actions += [_remove(file, meta.clock) for file in replaces]
        self._commit_until_clear(actions, meta)
        self._stand_at_own_commit(meta)
        self._tally = self._tally and self._tally.after([row, *files], replaces)
        self._newest = meta

    def _refuse_reuse(self, meta: BatchMeta) -> None:
        newest = self.newest()
        if newest is not None and meta.batch <= newest.batch:
            raise StateError("a batch number is never used again", value=f"{meta.batch}, after {newest.batch}")

    def _checkpoint_if_due(self) -> None:
        """Before a commit, so that a failure here is no doubt about the commit."""
        if self.version == 0 or self.version % CHECKPOINT_EVERY:
            return
        log_folder = self.path / DELTA_LOG
        with _engine_errors(log_folder):
            self._table.create_checkpoint()
            written = log_folder.glob(f"{self.version:020d}.checkpoint*")
            for path in [*written, log_folder / "_last_checkpoint", log_folder]:
                disk.sync(path)
        self._table = _load(self.path, self.version)  # an older handle would go on reading the entries one by one

    def _commit_until_clear(self, actions: list[AddAction | RemoveAction], meta: BatchMeta) -> None:
        """Delta has taken the commit or refused it: the identical commit is tried until one of both is certain.

        A listing would decide nothing, because a write can land later. Once a first try has landed, the next conflicts.
        """
        unclear: Exception | None = None
        for pause_s in RETRY_PAUSES_S:
            time.sleep(pause_s)
            try:
                return self._try_commit(actions, meta)
            except (DeltaError, OSError) as error:
                if isinstance(error, CommitFailedError) and str(error).startswith(_DEFINITE):
                    return None
                unclear = error
        raise Unavailable(
            "the lake does not say whether the batch is committed",
            value=f"batch {meta.batch}, attempt {meta.attempt}: {_first_line(unclear)}",
            remedy="see that the lake can be written; the driver starts over with a claim, which settles it",
        ) from unclear

    def _try_commit(self, actions: list[AddAction | RemoveAction], meta: BatchMeta) -> None:
        self._table.create_write_transaction(
            actions,
            mode="append",
            schema=Schema.from_arrow(self.schema),
            partition_by=PARTITION_COLUMNS,
            commit_properties=CommitProperties(
                custom_metadata={COMMIT_METADATA_KEY: meta.to_json()},
                app_transactions=[Transaction(app_transaction_id(self.operator), meta.batch)],
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )

    def _stand_at_own_commit(self, meta: BatchMeta) -> None:
        with _engine_errors(self.path):
            above = entries_above(self.path, self.version)
        verdict = judge_winners(above, meta.attempt, meta.epoch)
        if verdict is not Verdict.COMMITTED:
            raise _error(verdict, self.path, meta, above)
        own = next(entry.version for entry in above if entry.attempt == meta.attempt)
        with _engine_errors(self.path):
            disk.sync(entry_path(self.path, own))
            disk.sync(self.path / DELTA_LOG)
            self._table.load_as_version(own)
        if self._transaction_batch() != meta.batch:
            raise StateError("the log's application transaction is not the batch that was committed", value=self.path)

    def _transaction_batch(self) -> int | None:
        batch: int | None = self._table.transaction_version(app_transaction_id(self.operator))
        return batch

    def _read_newest(self) -> BatchMeta | None:
        batch = self._transaction_batch()
        if batch is None:
            return None
        rows = self.read("meta", META_PARTITION, batch - 1, ["batch", "value"]).filter(pc.field("batch") == batch)
        if rows.num_rows != 1:
            raise StateError(
                "the log lacks the metadata row of its newest batch",
                value=f"batch {batch} in {self.path}",
                remedy="bring the log's files back from a copy",
            )
        return BatchMeta.from_json(rows.column("value")[0].as_py().decode())

    def _files(self, condition: pc.Expression | None) -> list[DataFile]:
        """The data files that meet the condition, by partition and batch; without statistics, of any batch."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        rows = (actions if condition is None else actions.filter(condition)).to_pylist()
        files = [
            DataFile(
                path=row["path"],
                kind=row["partition.kind"],
                partition=row["partition.partition"],
                rows=row["num_records"] or 0,
                size=row["size_bytes"],
                min_batch=_or(row.get("min.batch"), -1),
                max_batch=_or(row.get("max.batch"), 2**63 - 1),
            )
            for row in rows
        ]
        return sorted(files, key=lambda file: (file.partition, file.min_batch))


def require_there(log: Path) -> None:
    """Nothing, if the log is there. Unavailable if it is away, as when its lake is not mounted: a write would make a
    new, empty one in its place.
    """
    with disk.disk_errors(log):
        there = (log / DELTA_LOG).is_dir()
    if not there:
        raise Unavailable("the lake is away", value=log, remedy="mount it again, or bring the folder back")


def write_meta(log: Path, meta: BatchMeta) -> DataFile:
    """The batch's metadata row is a data file of its own; its timestamp is the batch's clock."""
    value, timestamp = pa.array([meta.to_json().encode()]), pa.array([meta.clock], pa.int64())
    row = pa.table({"value": value, "timestamp": timestamp})
    return write_rows(log, "meta", META_PARTITION, row, batch=meta.batch, topic=None, attempt=meta.attempt)


def _create(path: Path, operator: str, schema: pa.Schema) -> None:
    """The table exists, at protocol 1/2, which every Delta reader knows; Delta mints its id."""
    disk.make_folder(path, synced=True)
    DeltaTable.create(
        str(path),
        schema=Schema.from_arrow(schema),
        mode="ignore",
        partition_by=PARTITION_COLUMNS,
        name=operator,
        configuration=_CONFIGURATION,
        raise_if_key_not_exists=False,
    )
    for written in (entry_path(path, 0), path / DELTA_LOG, path):
        disk.sync(written)


def _load(path: Path, version: int | None) -> DeltaTable:
    try:
        return DeltaTable(str(path), version=version)
    except (DeltaError, OSError) as error:
        require_there(path)
        raise StateError(
            f"the operator log cannot be read at version {version or 'newest'}: {_first_line(error)}",
            value=path,
            remedy="was it cleaned up behind that version, or damaged? Bring its _delta_log back from a copy",
        ) from error


@contextmanager
def _engine_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as error:
        raise Unavailable(f"the lake failed: {_first_line(error)}", value=path, remedy="look at the lake") from error


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


def _refuse_another(table: DeltaTable, operator: str, found: pa.Schema, expected: pa.Schema) -> None:
    metadata, path = table.metadata(), table.table_uri
    if (written := metadata.configuration.get(_FORMAT_KEY)) != str(FORMAT):
        remedy = f"this program reads format {FORMAT}: use the release that wrote the log, or migrate it"
        raise StateError("the operator log has another format", value=f"{written} in {path}", remedy=remedy)
    if metadata.name != operator:
        remedy = f"give {operator} a lake or a name of its own"
        raise StateError("the log belongs to another operator", value=f"{metadata.name} in {path}", remedy=remedy)
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


def _add(log: Path, file: DataFile, changes_data: bool) -> AddAction:
    batches = {"minValues": {"batch": file.min_batch}, "maxValues": {"batch": file.max_batch}}
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=_partition_values(file),
        modification_time=(log / file.path).stat().st_mtime_ns // 1_000_000,
        data_change=changes_data,
        stats=json.dumps({"numRecords": file.rows, **batches, "nullCount": {"batch": 0}}),
    )


def _remove(file: DataFile, clock_ms: int) -> RemoveAction:
    return RemoveAction(file.path, False, clock_ms, file.size, _partition_values(file))


def _partition_values(file: DataFile) -> dict[str, str | None]:
    return {"kind": file.kind, "partition": str(file.partition)}


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


def _first_line(error: object) -> str:
    return str(error).partition("\n")[0]
