"""An operator log at one version of its Delta table, for reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import Schema

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import StateError
from tidegate.contracts.naming import app_transaction_id
from tidegate.state.delta_log.creation import FORMAT_KEY
from tidegate.state.delta_log.data_files import ANY_BATCH, DataFile, dataset_of, read_files
from tidegate.state.delta_log.delta_snapshot import Snapshot, load
from tidegate.state.delta_log.log_entries import entry_key, newest_version
from tidegate.state.delta_log.newest_metadata import Newest, newest_metadata
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake


@dataclass(frozen=True, kw_only=True)
class LogSize:
    """The number of all data files in the log, and of the rows of kind `state` in them."""

    files: int
    state_rows: int


class LogVersion:
    """An operator log as it is at one version. Later commits change nothing in it."""

    def __init__(self, lake: Lake, snapshot: Snapshot) -> None:
        self.lake = lake
        self._snapshot = snapshot
        self._newest: Newest | None = None

    @classmethod
    def at(cls, lake: Lake, version: int | None) -> Self:
        """Return a handle at that version (None: the newest) for reading.

        It is cheap enough for every task that recovers a local state.
        """
        wanted = newest_version(lake) if version is None else version
        return cls(lake, load(lake, -1 if wanted is None else wanted))

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the log. Files that were written before a column was added lack it."""
        return pa.schema(Schema.from_json(self._snapshot.metadata["schemaString"]))

    @property
    def place(self) -> Place:
        """Return where the log is."""
        return self.lake.place

    def has_successor(self) -> bool:
        """Return True if the log has an entry above the handle's version. One key is asked for."""
        return self.lake.etag(entry_key(self.version + 1)) is not None

    @property
    def operator(self) -> str:
        """Return the name of the operator that the log belongs to."""
        return str(self._snapshot.metadata["name"])

    @property
    def size(self) -> LogSize:
        """Return the number of data files and state rows at the handle's version.

        State rows in files that another program has merged count once the handle has read rows. This makes no request.
        """
        return LogSize(files=len(self._snapshot.files), state_rows=self._snapshot.state_rows)

    @property
    def version(self) -> int:
        """Return the Delta version that the handle is at."""
        return self._snapshot.version

    @property
    def table_id(self) -> str:
        """Return Delta's id of the table. A different id means a different log, even at the same path."""
        return str(self._snapshot.metadata["id"])

    @property
    def format(self) -> int:
        """Return the version of the log's format (`tidegate.format`)."""
        return int(self._snapshot.metadata["configuration"][FORMAT_KEY])

    @property
    def checkpoint(self) -> int:
        """Return the version of the newest checkpoint that the handle knows of; -1 if it knows none."""
        return self._snapshot.checkpoint

    @property
    def entries_since_checkpoint(self) -> int:
        """Return the number of entries that a reader of the handle's version replays."""
        return self.version - self.checkpoint

    def newest(self) -> BatchMeta | None:
        """Return the metadata of the newest batch at the handle's version; None before the first claim."""
        # rule: no-update-to-newest
        if self._newest is None:
            self._newest = self._read_newest()
        return None if self._newest is None else self._newest.meta

    def has_file(self, path: str) -> bool:
        """Return True if the table has the data file at the handle's version."""
        return path in self._snapshot.files

    def data_files(
        self, kind: str, partition: int | None = None, *, after_batch: int = -1, up_to: int = ANY_BATCH
    ) -> list[DataFile]:
        """Return the files that may have rows of batches above `after_batch` and not above `up_to`.

        They are those at the handle's version, of all partitions if `partition` is None, ordered by partition and
        batch. Each is given as one that has a single part; a file with rows of several partitions is given for each.
        """
        self._snapshot.with_all_parts(self.lake, self.schema)
        found = (
            file.part(part)
            for file in self._snapshot.files.values()
            if file.max_batch > after_batch and file.min_batch <= up_to
            for part in file.parts or ()
            if part.kind == kind and partition in (None, part.partition)
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
        keys: Sequence[bytes] | None = None,
    ) -> pa.Table:
        """Return the kind's rows of batches above `after_batch` and not above `up_to`, by partition, batch and seq.

        None for `partition` means all partitions, None for `columns` all columns of the log, None for `keys` all keys.
        """
        files = self.data_files(kind, partition, after_batch=after_batch, up_to=up_to)
        return read_files(self.lake, files, self.schema, columns, after_batch=after_batch, up_to=up_to, keys=keys)

    def dataset(self) -> ds.Dataset:
        """Return all rows of the log, of every kind, as a dataset for engines that read the parts that they need."""
        return dataset_of(self.lake, self._snapshot.files.values(), self.schema)

    def batches(
        self,
        kind: str,
        partition: int,
        *,
        after_batch: int = -1,
        up_to: int = ANY_BATCH,
        step: str | None = None,
    ) -> list[int]:
        """Return the batches above `after_batch` and not above `up_to` that have rows of the kind in the partition.

        They are ascending. `step`: of a pipeline, only rows of that step count.
        """
        columns = ["batch"] if step is None else ["batch", "step"]
        rows = self.read(kind, partition, after_batch, columns, up_to=up_to)
        found = rows if step is None else rows.filter(pc.equal(rows["step"], step))
        return sorted(pc.unique(found["batch"]).to_pylist())

    def pinned_copy(self) -> LogVersion:
        """Return a copy of the handle that stays at this version, for a thread that runs beside the committing one."""
        handle = LogVersion(self.lake, self._copied_snapshot())
        handle._newest = self._newest
        return handle

    def at_later(self, version: int) -> LogVersion:
        """Return a handle at that later version for reading; only the entries between the two are read."""
        handle = self.pinned_copy()
        entries = handle._snapshot.catch_up(self.lake, version)
        handle._newest = None if self._newest is None else self._newest.after(self.version, entries)
        return handle

    def _copied_snapshot(self) -> Snapshot:
        return replace(self._snapshot, files=dict(self._snapshot.files))

    def _read_newest(self) -> Newest | None:
        committed = self._snapshot.transactions.get(app_transaction_id(self.operator))
        if committed is None:
            return None
        newest = newest_metadata(self.lake, self.version)
        # rule: metadata-required/opened
        if newest is None or newest.meta.batch != committed["version"]:
            raise StateError(
                "the log lacks the metadata of its newest batch",
                value=f"batch {committed['version']} in {self.place}",
                remedy="restore the log's _delta_log from a copy",
            )
        return newest

    def whole(self, file: DataFile) -> DataFile:
        """Return the file of the table of which a part is given."""
        return self._snapshot.files[file.path]
