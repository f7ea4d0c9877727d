"""Write, read and check the Parquet data files of an operator log."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.contracts.errors import EngineError, StateError
from tidegate.contracts.log_schema import PARTITION_COLUMNS
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import check_log_exists

ORDER = ("partition", "batch", "seq")
"""Order in which rows of a kind are read; within a partition it is the order in which things happened."""

ANY_BATCH = 2**63 - 1
"""At least as large as any batch number: no upper bound."""

ROW_GROUP_BYTES = 8 * 2**20
"""Approximate uncompressed size of a row group. A reader of a few batches reads at least one row group."""

_DICTIONARY = {"op", "cause", "topic", "batch"}
_PARQUET_END = b"PAR1"
_NO_STATISTICS = {"key", "value", "headers"}


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet file of the log, with rows of the batches `min_batch` to `max_batch`, inclusive.

    `path` is relative to the log's folder, `size` is in bytes, and `written_ms` is the file's modification time.
    """

    path: str
    kind: str
    partition: int
    rows: int
    size: int
    min_batch: int
    max_batch: int
    written_ms: int


def write_parquet(table: pa.Table, path: Path, *, sync: bool) -> None:
    """Write the rows to a new Parquet file; with `sync`, fsync the file and its folder."""
    integers = [column.name for column in table.schema if pa.types.is_integer(column.type)]
    with path.open("xb") as sink:
        pq.write_table(
            table,
            sink,
            row_group_size=max(1, table.num_rows * ROW_GROUP_BYTES // max(table.nbytes, ROW_GROUP_BYTES)),
            compression="zstd",
            compression_level=1,
            store_schema=False,  # else readers would get dictionary columns instead of strings
            use_dictionary=[name for name in table.column_names if name in _DICTIONARY],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in integers if name not in _DICTIONARY},
            write_statistics=[name for name in table.column_names if name not in _NO_STATISTICS],
        )
    if sync:
        # rule: data-files-synced
        disk.sync(path)
        # rule: data-files-synced
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
    """Return the files' rows of batches above `after_batch` and not above `up_to`, in ORDER.

    The result has the given columns of the log's schema (None: all); columns that a file lacks are null.
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
    return in_order(rows).select(wanted)


def _constants(file: DataFile, schema: pa.Schema) -> ds.Expression:
    """Return an expression with the values of the partition columns, which the file itself does not have."""
    values = {"kind": file.kind, "partition": file.partition}
    kind, partition = (ds.field(name) == pa.scalar(values[name], schema.field(name).type) for name in PARTITION_COLUMNS)
    return kind & partition


def in_order(table: pa.Table) -> pa.Table:
    """Return the rows in ORDER."""
    if _is_ordered(*(table.column(name).to_numpy() for name in ORDER)):
        return table
    return table.sort_by([(name, "ascending") for name in ORDER])


def _is_ordered(*columns: np.typing.NDArray[np.int64]) -> bool:
    """Return True if the rows are sorted by the columns, of which the first is the most significant."""
    undecided = np.ones(max(len(columns[0]) - 1, 0), np.bool_)
    for column in columns:
        step = column[1:] - column[:-1]
        if np.any(step[undecided] < 0):
            return False
        undecided &= step == 0
    return True


def require_whole(log: Path, files: Iterable[DataFile]) -> None:
    """Raise EngineError unless each file exists here with the size that its task reported, and ends as Parquet does.

    Executors may have another lake under the same path, and a network file system may lose data that it had accepted.
    """
    for file in files:
        if fault := _fault(log / file.path, file.size):
            raise EngineError(
                "a data file that a task has written is missing or incomplete on the driver's machine",
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
    # rule: committed-files-whole/size
    if found != size:
        return f"{found} bytes, not {size}"
    # rule: committed-files-whole/end
    return None if end == _PARQUET_END else "its Parquet footer is missing"


@contextmanager
def _damage_named(log: Path) -> Iterator[None]:
    """Raise StateError, naming the file, if a file is missing or damaged; Unavailable if the lake cannot be read."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        check_log_exists(log)
        raise StateError(
            f"a data file of the operator log is missing or damaged: {error}",
            value=log,
            remedy="was the log vacuumed? Bring the log's files back from a copy",
        ) from error
