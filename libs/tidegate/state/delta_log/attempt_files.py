"""Write and delete the data files of one attempt at a batch. Their names contain the batch and the attempt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import EngineError
from tidegate.contracts.log_schema import META_PARTITION
from tidegate.contracts.naming import data_folder
from tidegate.state.delta_log.data_files import DataFile, as_parquet
from tidegate.state.lake.port import Lake

NAME = re.compile(r"(\d+)-([0-9a-zA-Z]+)-\d+\.parquet")
"""The name of a data file: batch, attempt and number."""


def write_rows(
    log: Lake,
    kind: str,
    partition: int,
    table: pa.Table,
    *,
    batch: int,
    topic: str | None,
    attempt: str,
    clock: int,
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
    return write_file(log, kind, partition, pa.table(columns), batch=batch, attempt=attempt, clock=clock)


def write_file(
    log: Lake, kind: str, partition: int, table: pa.Table, *, batch: int, attempt: str, clock: int, number: int = 0
) -> DataFile:
    """Write the rows, with the `batch` and `seq` that they have, to one data file, durably, and return the file.

    The file is named after `batch`, `attempt` and `number`, which together no other file of its folder may have.
    `clock`: that of the batch, ms.
    """
    content, key = as_parquet(table), f"{data_folder(kind, partition)}/{batch}-{attempt}-{number}.parquet"
    log.put(key, content)
    batches = pc.min_max(table.column("batch") if table.num_rows else pa.array([batch]))
    return DataFile(
        path=key,
        kind=kind,
        partition=partition,
        rows=table.num_rows,
        size=len(content),
        min_batch=batches["min"].as_py(),
        max_batch=batches["max"].as_py(),
        written_ms=clock,
    )


def folders_of(partitions: Iterable[int]) -> list[str]:
    """Return the folders in which batches and compactions of these partitions have files."""
    kinds = ("state", "emission", "late", "rejected")
    return [data_folder(kind, partition) for kind in kinds for partition in partitions] + [
        data_folder("meta", META_PARTITION)
    ]


def delete_attempt(log: Lake, batch: int, attempt: str, folders: Iterable[str]) -> int:
    """Delete the data files of an attempt that is known to have failed; return how many were found.

    `folders`: those that the attempt may have written to. Ignore errors of the lake. Files that could not be deleted,
    and files that a task writes after its attempt has ended, are deleted by a later clean-up.
    """
    found: list[str] = []
    with suppress(EngineError):
        for folder in folders:
            found += _files_of(log, folder, f"{batch}-{attempt}-")
    # rule: failed-attempt-files
    delete_files(log, found)
    return len(found)


def _files_of(log: Lake, folder: str, start: str) -> list[str]:
    """Return the keys of the files in the folder whose names begin like that, which a listing has in one piece."""
    keys = (found.key for found in log.list_after(folder, f"{folder}/{start}"))
    return [
        key
        for key in takewhile(lambda key: key.startswith(f"{folder}/{start}"), keys)
        if NAME.fullmatch(key[len(folder) + 1 :])
    ]


def delete_files(log: Lake, paths: Iterable[str]) -> None:
    """Delete files that no commit names. Ignore errors of the lake: a later clean-up deletes what is left."""
    with suppress(EngineError):
        log.delete(paths)
