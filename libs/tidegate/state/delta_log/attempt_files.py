"""Write and delete the data files of one attempt at a batch. Their names contain the batch and the attempt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.naming import data_folder
from tidegate.state import disk
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.lake import MOUNTED_LAKE, Lake


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
    lake: Lake = MOUNTED_LAKE,
) -> DataFile:
    """Write the rows, in the table's order, to one data file of the batch, and return the file.

    Add the columns `batch`, `seq` (from 0) and, unless it is None, `topic`. Columns of the log that the table lacks
    read as null. The file is no part of the log until a commit names it.
    """
    rows = table.num_rows
    added = {"batch": pa.repeat(pa.scalar(batch, pa.int64()), rows), "seq": pa.array(np.arange(rows, dtype=np.int64))}
    if topic is not None:
        added["topic"] = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int8), [topic])
    columns = dict(zip(table.column_names, table.columns, strict=True)) | added
    return write_file(log, kind, partition, pa.table(columns), batch=batch, attempt=attempt, sync=sync, lake=lake)


def write_file(
    log: Path,
    kind: str,
    partition: int,
    table: pa.Table,
    *,
    batch: int,
    attempt: str,
    sync: bool = True,
    lake: Lake = MOUNTED_LAKE,
) -> DataFile:
    """Write the rows, with the `batch` and `seq` that they have, to one data file, and return the file.

    The file is named after `batch` and `attempt`. Files of an attempt are numbered from 0 within their folder, so that
    they can be found without listing it.
    """
    folder = log / data_folder(kind, partition)
    with disk.disk_errors(folder):
        disk.make_folder(folder, synced=sync)
        path = next(path for path in _attempt_files(folder, batch, attempt) if not path.exists())
        lake.write_parquet(table, path, sync=sync)
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
    """Yield the paths of an attempt's files in the folder, in the order in which they are used; without end."""
    return (folder / f"{batch}-{attempt}-{number}.parquet" for number in count())


def delete_attempt(log: Path, batch: int, attempt: str) -> int:
    """Delete the data files of an attempt that is known to have failed; return how many were found.

    Ignore errors of the disk. Files that could not be deleted, and files that a task writes after its attempt
    has ended, are deleted by a later clean-up.
    """
    folders = log.glob("kind=*/partition=*")
    found = [path for folder in folders for path in takewhile(Path.exists, _attempt_files(folder, batch, attempt))]
    for path in found:
        with suppress(OSError):
            # rule: failed-attempt-files
            path.unlink(missing_ok=True)
    return len(found)


def delete_files(log: Path, batch: int, attempt: str, files: Iterable[DataFile]) -> None:
    """Delete all files of an attempt whose commit was not made: `files`, and those named after the batch and attempt.

    `files` is needed because files of a compaction may be named after an earlier batch than that of its commit.
    """
    delete_attempt(log, batch, attempt)
    for file in files:
        with suppress(OSError):
            (log / file.path).unlink(missing_ok=True)
