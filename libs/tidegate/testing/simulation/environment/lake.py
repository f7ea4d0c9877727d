"""The simulated lake: unclear commits, full and failing disks, an unmounted lake, and OPTIMIZE by another program.

Log entries are real files in a folder in memory. Data files are stubs on disk; their rows are kept in memory as Arrow
tables.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Schema

from tidegate.contracts.batch_metadata import BatchMeta, after_document
from tidegate.contracts.errors import StateError
from tidegate.contracts.log_schema import PARTITION_COLUMNS
from tidegate.state import disk, leases
from tidegate.state.alignment_decisions import Lease
from tidegate.state.delta_log import log_entries
from tidegate.state.delta_log.actions import add, remove
from tidegate.state.delta_log.creation import create_table
from tidegate.state.delta_log.data_files import ANY_BATCH, ORDER, DataFile, in_order
from tidegate.state.delta_log.delta_snapshot import load
from tidegate.testing.simulation.world import World

_FATES = ("lost", "done", "late")
"""Fates of a log entry whose writer gets no answer."""
_LANDING_PROBABILITY = 0.1
"""Probability that a delayed entry lands when another entry is written."""


class SimulatedLake:
    """The operator logs of a run and their data files."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tables: dict[Path, pa.Table] = {}
        self._under_way: list[tuple[Path, int, Sequence[Any]]] = []
        self._newest: dict[Path, BatchMeta] = {}
        self._created = 0

    def create_table(self, path: Path, operator: str, schema: pa.Schema) -> None:
        """Create the table of an operator's log, with an id that is the same in each run."""
        self._created += 1
        entry = log_entries.entry_path(path, 0)
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text("\n".join(map(json.dumps, _first_actions(operator, schema, f"{operator}-{self._created}"))))

    def put_entry(self, log: Path, version: int, actions: Sequence[Any]) -> bool:
        """Write the entry, unless its answer or the entry itself gets lost.

        Return True if the entry was written and False if the version exists already. Raise OSError if the outcome is
        unclear.
        """
        self._world.step("before the entry")
        self._write_some_delayed()
        if not self._world.chance.happens("unclear_commit"):
            put = self._write_entry(log, version, actions)
            self._world.step("after the entry")
            return put
        fate = self._world.chance.of("fate").choice(_FATES)
        self._world.say("entry of version %d: unclear, %s", version, fate)
        if fate == "done":
            self._write_entry(log, version, actions)
        if fate == "late":
            self._under_way.append((log, version, actions))
        raise OSError(errno.ETIMEDOUT, "the lake does not answer")

    def go_away(self, folder: Path) -> None:
        """Unmount the lake if it is mounted. Its mount point stays as an empty folder or disappears."""
        if self._unmounted(folder).exists():
            return
        folder.rename(self._unmounted(folder))
        if self._world.chance.of("lake_away").random() < 0.5:
            folder.mkdir()

    def come_back(self, folder: Path) -> None:
        """Mount the lake again, and delete whatever was written into its mount point."""
        if (away := self._unmounted(folder)).exists():
            shutil.rmtree(folder, ignore_errors=True)
            away.rename(folder)

    def _unmounted(self, folder: Path) -> Path:
        return folder.with_name("unmounted")

    def optimize(self, log: Path) -> None:
        """Merge the files of one kind and partition, if one has several, as `OPTIMIZE` by another program does."""
        version = log_entries.newest_version(log)
        if version is None:
            return
        table = load(log, version)
        schema = pa.schema(Schema.from_json(table.metadata["schemaString"]))
        by_folder = groupby(sorted(table.files.values(), key=_folder_of), key=_folder_of)
        several = [found for _, files in by_folder if len(found := list(files)) > 1]
        if not several:
            return
        merged = self._world.chance.of("foreign_optimize").choice(several)
        rows = pa.concat_tables(self._rows(log / file.path, file, schema, (-1, ANY_BATCH)) for file in merged)
        path = f"{_folder_of(merged[0])}/part-{version:05d}.parquet"
        (log / path).write_bytes(b"PAR1")
        self._tables[log / path] = rows.drop_columns(PARTITION_COLUMNS)
        file = replace(
            merged[0],
            path=path,
            rows=rows.num_rows,
            min_batch=min(each.min_batch for each in merged),
            max_batch=max(each.max_batch for each in merged),
        )
        removed = [remove(each, self._world.clock.now_ms()) for each in merged]
        self._world.say("OPTIMIZE as version %d: %s", version + 1, path)
        log_entries.put_entry(
            log, version + 1, [{"commitInfo": {"operation": "OPTIMIZE"}}, *removed, add(file, changes_data=False)]
        )
        self._world.note_foreign_version(log.name, version + 1)

    def finish_delayed(self) -> None:
        """Let all delayed entries land."""
        for entry in self._under_way:
            self._write_entry(*entry)
        self._under_way = []

    def _write_some_delayed(self) -> None:
        for entry in self._under_way[:]:
            if _is_there(entry[0]) and self._world.chance.of("lake").random() < _LANDING_PROBABILITY:
                self._under_way.remove(entry)
                self._write_entry(*entry)

    def _write_entry(self, log: Path, version: int, actions: Sequence[Any]) -> bool:
        if not log_entries.put_entry(log, version, actions):
            return False
        if (document := log_entries.document_of(actions)) is not None:
            self._newest[log] = after_document(self._newest.get(log), document)
            self._world.committed(self._newest[log], version)
        return True

    def write_parquet(self, table: pa.Table, path: Path, *, sync: bool) -> None:
        """Keep the rows in memory, with a stub in the place of their file, unless the disk is full."""
        self._world.step("before a data file")
        if self._world.chance.happens("disk_full"):
            raise OSError(errno.ENOSPC, "No space left on device")
        with path.open("xb") as file:
            file.write(b"PAR1")
        self._tables[path] = table

    def read_files(
        self,
        log: Path,
        files: Iterable[DataFile],
        schema: pa.Schema,
        columns: Sequence[str] | None = None,
        *,
        after_batch: int = -1,
        up_to: int = ANY_BATCH,
    ) -> pa.Table:
        """Return the rows of the files, unless the lake fails."""
        with disk.disk_errors(log):
            if self._world.chance.happens("lake_failure"):
                raise OSError(errno.EIO, "Input/output error")
        wanted = list(schema.names if columns is None else columns)
        narrow = pa.schema([schema.field(name) for name in dict.fromkeys([*wanted, *ORDER])])
        log_entries.check_log_exists(log)
        found = [self._rows(log / file.path, file, narrow, (after_batch, up_to)) for file in files]
        rows = pa.concat_tables(found) if found else narrow.empty_table()
        return in_order(rows).select(wanted)

    def write_lease(self, log: Path, reader: str, lease: Lease) -> None:
        """Write the lease, unless the disk fails."""
        self._world.step("before a lease")
        if self._world.chance.happens("lost_lease"):
            raise OSError(errno.EIO, "Input/output error")
        leases.write(log, reader, lease)
        self._world.step("after a lease")

    def _rows(self, path: Path, file: DataFile, schema: pa.Schema, between: tuple[int, int]) -> pa.Table:
        if not path.exists():
            raise StateError("a data file of the operator log is missing", value=path)
        table = self._tables[path]
        constants = {"kind": file.kind, "partition": file.partition}
        rows = pa.table([_column(table, field, constants.get(field.name)) for field in schema], schema=schema)
        after_batch, up_to = between
        if file.min_batch > after_batch and file.max_batch <= up_to:
            return rows
        return rows.filter((pc.field("batch") > after_batch) & (pc.field("batch") <= up_to))


def _is_there(log: Path) -> bool:
    return (log / log_entries.DELTA_LOG).is_dir()


def _folder_of(file: DataFile) -> str:
    return file.path.rpartition("/")[0]


def _column(table: pa.Table, field: pa.Field, constant: object) -> Any:
    if constant is None and field.name in table.column_names:
        return table.column(field.name).cast(field.type)
    return pa.repeat(pa.scalar(constant, field.type), table.num_rows)


def _first_actions(operator: str, schema: pa.Schema, table_id: str) -> list[dict[str, Any]]:
    """Return the first log entry as delta-rs writes it, except for the table's id."""
    actions = [json.loads(line) for line in _first_entry(operator, schema).splitlines()]
    return [
        action | {"metaData": action["metaData"] | {"id": table_id}} if "metaData" in action else action
        for action in actions
    ]


@lru_cache(maxsize=4)
def _first_entry(operator: str, schema: pa.Schema) -> bytes:
    """Return the first log entry as delta-rs writes it, cached per operator and schema."""
    with TemporaryDirectory() as folder:
        create_table(Path(folder), operator, schema)
        return log_entries.entry_path(Path(folder), 0).read_bytes()
