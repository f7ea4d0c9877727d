"""The log's data files, written and read by tasks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.contracts.errors import EngineError, StateError
from tidegate.contracts.naming import data_folder
from tidegate.contracts.schema import PARTITION_COLUMNS
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import require_there

ORDER = ("partition", "batch", "seq")
"""Rows of a kind are read in this order; within a partition it is the order in which things happened."""

ANY_BATCH = 2**63 - 1

ROW_GROUP_BYTES = 8 * 2**20
"""About the size, uncompressed, of what a reader of few batches reads at the least."""

_DICTIONARY = {"op", "cause", "topic", "batch"}
_PARQUET_END = b"PAR1"
_NO_STATISTICS = {"key", "value", "headers"}


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet file; `path` is relative to the log. Its rows are of batches min_batch to max_batch, inclusive.

    `size` in bytes; `written_ms` is the file's own time.
    """

    path: str
    kind: str
    partition: int
    rows: int
    size: int
    min_batch: int
    max_batch: int
    written_ms: int


def write_rows(
    log: Path,
    kind: str,
    partition: int,
    table: pa.Table,
    *,
    batch: int,
    topic: str | None,
    attempt: str,
    sync: bool = True,
) -> DataFile:
    """The rows are one data file of the batch, in the table's order; nothing refers to it before a commit does.

    Adds `batch`, `seq` (from 0) and `topic`; columns that the table lacks are null for every reader.
    """
    rows = table.num_rows
    added = {"batch": pa.repeat(pa.scalar(batch, pa.int64()), rows), "seq": pa.array(np.arange(rows, dtype=np.int64))}
    if topic is not None:
        added["topic"] = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [topic])
    columns = dict(zip(table.column_names, table.columns, strict=True)) | added
    return write_file(log, kind, partition, pa.table(columns), batch=batch, attempt=attempt, sync=sync)


def write_file(
    log: Path, kind: str, partition: int, table: pa.Table, *, batch: int, attempt: str, sync: bool = True
) -> DataFile:
    """The rows, with the `batch` and `seq` that they have, are one data file named after the batch and its attempt.

    Files of an attempt are numbered from 0 in their folder, so that they are found without a listing.
    """
    folder = log / data_folder(kind, partition)
    with disk.disk_errors(folder):
        disk.make_folder(folder, synced=sync)
        path = next(path for path in _attempt_files(folder, batch, attempt) if not path.exists())
        _write_parquet(table, path, sync=sync)
        written = path.stat()
    batches = pc.min_max(table.column("batch") if table.num_rows else pa.array([batch]))
    return DataFile(
        path=str(path.relative_to(log)),
        kind=kind,
        partition=partition,
        rows=table.num_rows,
        size=written.st_size,
        min_batch=batches["min"].as_py(),
        max_batch=batches["max"].as_py(),
        written_ms=written.st_mtime_ns // 1_000_000,
    )


def _attempt_files(folder: Path, batch: int, attempt: str) -> Iterator[Path]:
    """The names of an attempt's files in the folder, in the order in which they are taken."""
    return (folder / f"{batch}-{attempt}-{number}.parquet" for number in count())


def _write_parquet(table: pa.Table, path: Path, *, sync: bool) -> None:
    integers = [column.name for column in table.schema if pa.types.is_integer(column.type)]
    with path.open("xb") as sink:
        pq.write_table(
            table,
            sink,
            row_group_size=max(1, table.num_rows * ROW_GROUP_BYTES // max(table.nbytes, ROW_GROUP_BYTES)),
            compression="zstd",
            compression_level=1,
            store_schema=False,  # else readers would see this process's dictionaries instead of strings
            use_dictionary=[name for name in table.column_names if name in _DICTIONARY],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in integers if name not in _DICTIONARY},
            write_statistics=[name for name in table.column_names if name not in _NO_STATISTICS],
        )
    if sync:
        disk.sync(path)
        disk.sync(path.parent)


def read_files(
    log: Path,
    files: Iterable[DataFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    after_batch: int = -1,
    up_to: int = ANY_BATCH,
) -> pa.Table:
    """Return the files' rows of batches above `after_batch` and not above `up_to` in ORDER.

    With the given columns of the log's schema (None: all); columns that a file lacks are null.
    """
    wanted = list(schema.names if columns is None else columns)
    disk_files, parquet = fs.LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(str(log / file.path), disk_files, _constants(file, schema))
        for file in sorted(files, key=lambda file: (file.partition, file.min_batch))
    ]
    source = ds.FileSystemDataset(fragments, schema, parquet, disk_files)
    with disk.disk_errors(log), _damage_named(log):
        rows = source.to_table(
            list(dict.fromkeys([*wanted, *ORDER])),
            filter=(ds.field("batch") > after_batch) & (ds.field("batch") <= up_to),
        )
    return _in_order(rows).select(wanted)


def _constants(file: DataFile, schema: pa.Schema) -> ds.Expression:
    """What is true of every row of a file: the values of the partition columns, which the file itself lacks."""
    values = {"kind": file.kind, "partition": file.partition}
    kind, partition = (ds.field(name) == pa.scalar(values[name], schema.field(name).type) for name in PARTITION_COLUMNS)
    return kind & partition


def _in_order(table: pa.Table) -> pa.Table:
    if _is_ordered(*(table.column(name).to_numpy() for name in ORDER)):
        return table
    return table.sort_by([(name, "ascending") for name in ORDER])


def _is_ordered(*columns: np.typing.NDArray[np.int64]) -> bool:
    """True when the rows ascend by the columns, the first one deciding first."""
    undecided = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        step = column[1:] - column[:-1]
        if np.any(step[undecided] < 0):
            return False
        undecided &= step == 0
    return True


def require_whole(log: Path, files: Iterable[DataFile]) -> None:
    """Raise EngineError unless each file is here as the task wrote it: its size, and the end of a Parquet file.

    Executors may have another lake under the same path, and a network file system may lose what it had taken.
    """
    for file in files:
        if fault := _fault(log / file.path, file.size):
            raise EngineError(
                "a data file that a task has written is not whole where the driver looks for it",
                value=f"{log / file.path}: {fault}",
                remedy="give the driver and all executors the same lake under the same path; nothing was committed",
            )


def _fault(path: Path, size: int) -> str | None:
    try:
        with path.open("rb", buffering=0) as file:
            found = os.fstat(file.fileno()).st_size
            end = os.pread(file.fileno(), len(_PARQUET_END), max(0, found - len(_PARQUET_END)))
    except OSError as error:
        return str(error.strerror)
    if found != size:
        return f"{found} bytes, not {size}"
    return None if end == _PARQUET_END else "its Parquet footer is missing"


def delete_attempt(log: Path, batch: int, attempt: str) -> int:
    """The attempt's data files are gone, as far as the disk lets them; gives their number.

    For an attempt that is known to have failed. What stays, or is written by a task that outlives it, is swept later.
    """
    folders = log.glob("kind=*/partition=*")
    found = [path for folder in folders for path in takewhile(Path.exists, _attempt_files(folder, batch, attempt))]
    for path in found:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return len(found)


def delete_files(log: Path, batch: int, attempt: str, files: Iterable[DataFile]) -> None:
    """Delete what an attempt has written for a commit that was not made: `files`, and all that is named after it.

    The files of a compaction may be named after an earlier batch than the one that it was to be committed as.
    """
    delete_attempt(log, batch, attempt)
    for file in files:
        with suppress(OSError):
            (log / file.path).unlink(missing_ok=True)


@contextmanager
def _damage_named(log: Path) -> Iterator[None]:
    """A file that is missing or damaged inside is a StateError that names it; Unavailable if the lake is away."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        require_there(log)
        raise StateError(
            f"a data file of the operator log is missing or damaged: {error}",
            value=log,
            remedy="was the log vacuumed? Bring the log's files back from a copy",
        ) from error
