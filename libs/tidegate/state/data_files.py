"""The log's data files, written and read by tasks. May import: the standard library, pyarrow, contracts, state.disk."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.contracts.naming import data_folder
from tidegate.contracts.schema import PARTITION_COLUMNS
from tidegate.state import disk

ORDER = ("partition", "batch", "seq")
"""Rows of a kind are read in this order; within a partition it is the order in which things happened."""

_DICTIONARY = {"op", "cause", "topic", "batch"}
_NO_STATISTICS = {"key", "value", "headers"}


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet file; `path` is relative to the log. Its rows are of batches min_batch to max_batch, inclusive."""

    path: str
    kind: str
    partition: int
    rows: int
    size: int
    min_batch: int
    max_batch: int


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
    count = table.num_rows
    added = {"batch": pa.repeat(pa.scalar(batch, pa.int64()), count), "seq": pa.array(np.arange(count, dtype=np.int64))}
    if topic is not None:
        added["topic"] = pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), [topic])
    columns = dict(zip(table.column_names, table.columns, strict=True)) | added
    return write_file(log, kind, partition, pa.table(columns), batch=batch, attempt=attempt, sync=sync)


def write_file(
    log: Path, kind: str, partition: int, table: pa.Table, *, batch: int, attempt: str, sync: bool = True
) -> DataFile:
    """The rows, with the `batch` and `seq` that they have, are one data file named after the batch and its attempt."""
    path = f"{data_folder(kind, partition)}/{batch}-{attempt}-{secrets.token_hex(4)}.parquet"
    with disk.disk_errors(log / path):
        size = _write_parquet(table, log / path, sync=sync)
    batches = pc.min_max(table.column("batch"))
    return DataFile(
        path=path,
        kind=kind,
        partition=partition,
        rows=table.num_rows,
        size=size,
        min_batch=batches["min"].as_py(),
        max_batch=batches["max"].as_py(),
    )


def _write_parquet(table: pa.Table, path: Path, *, sync: bool) -> int:
    disk.make_folder(path.parent, synced=sync)
    integers = [column.name for column in table.schema if pa.types.is_integer(column.type)]
    with path.open("xb") as sink:
        pq.write_table(
            table,
            sink,
            compression="zstd",
            compression_level=1,
            store_schema=False,  # else readers would see this process's dictionaries instead of strings
            use_dictionary=[name for name in table.column_names if name in _DICTIONARY],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in integers if name not in _DICTIONARY},
            write_statistics=[name for name in table.column_names if name not in _NO_STATISTICS],
        )
        size = sink.tell()
    if sync:
        disk.sync(path)
        disk.sync(path.parent)
    return size


def read_files(
    log: Path,
    files: Iterable[DataFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    after_batch: int = -1,
) -> pa.Table:
    """The files' rows of batches above `after_batch` in ORDER, with the given columns of the log's schema (None: all).

    Columns that a file lacks are null.
    """
    wanted = list(schema.names if columns is None else columns)
    disk_files, parquet = fs.LocalFileSystem(), ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(str(log / file.path), disk_files, _constants(file, schema))
        for file in sorted(files, key=lambda file: (file.partition, file.min_batch))
    ]
    source = ds.FileSystemDataset(fragments, schema, parquet, disk_files)
    with disk.disk_errors(log):
        rows = source.to_table(list(dict.fromkeys([*wanted, *ORDER])), filter=ds.field("batch") > after_batch)
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


def delete_attempt(log: Path, attempt: str) -> int:
    """No data file of the attempt is left; gives their number. For attempts that are known to have failed, only."""
    found = list(log.glob(f"kind=*/partition=*/*-{attempt}-*.parquet"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)
