"""Write and delete the data files of one attempt at a batch. Their names contain the batch and the attempt.

The rows of all partitions of a task go to one file, so that a batch costs as many requests as it has tasks. Only logs
of former formats have a file for each kind and partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import EngineError
from tidegate.contracts.log_schema import META_PARTITION, is_partitioned
from tidegate.contracts.naming import MIXED_FOLDER, partition_folder
from tidegate.state.delta_log.data_files import DataFile, Part, as_parquet
from tidegate.state.lake.port import Lake

NAME = re.compile(r"(\d+)-([0-9a-zA-Z]+)-[a-z0-9.-]+\.parquet")
"""The name of a data file: batch, attempt, and what no other file of the attempt has there."""


class Rows(NamedTuple):
    """Rows of one kind and partition, in order."""

    kind: str
    partition: int
    table: pa.Table


class Naming(NamedTuple):
    """What the data files of an attempt are named and written by; `clock` is that of the batch, ms."""

    log_format: int
    batch: int
    attempt: str
    clock: int


def write_rows(log: Lake, naming: Naming, rows: Sequence[Rows], *, topic: str | None) -> tuple[DataFile, ...]:
    """Write a task's rows of the batch, and return the files: one for all of them, none if there are no rows.

    In a partitioned log, there is a file for each kind and partition. Add the columns `batch`, `seq` (from 0 for each
    kind and partition) and, unless it is None, `topic`. Columns of the log that a table lacks, or that have only nulls,
    are not in the file, and read as null. The files are no part of the log until a commit names them.
    """
    given = [each for each in rows if each.table.num_rows]
    if is_partitioned(naming.log_format):
        return tuple(
            write_file(log, naming, kind, partition, without_empty(numbered([table], naming.batch, topic)))
            for kind, partition, table in given
        )
    if not given:
        return ()
    number = min(each.partition for each in given)
    key = f"{MIXED_FOLDER}/{naming.batch:020d}-{naming.attempt}-{number}.parquet"
    parts = [Part(kind, partition, table.num_rows) for kind, partition, table in given]
    table = without_empty(numbered([each.table for each in given], naming.batch, topic))
    return (_put(log, key, naming, parts, table),)


def numbered(tables: Sequence[pa.Table], batch: int, topic: str | None) -> pa.Table:
    """Return the rows of all tables with `batch`, `seq` (from 0 in each table) and, unless it is None, `topic`.

    Rows that have a topic keep it. A column that a table lacks has nulls there.
    """
    rows = pa.concat_tables(tables, promote_options="default")
    seq = np.concatenate([np.arange(table.num_rows) for table in tables])
    added = {"batch": pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows), "seq": pa.array(seq)}
    if topic is not None:
        added["topic"] = _topics(rows, topic)
    return pa.table(dict(zip(rows.column_names, rows.columns, strict=True)) | added)


def _topics(rows: pa.Table, topic: str) -> pa.Array:
    if "topic" not in rows.column_names:
        return pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int8), [topic])
    own = rows["topic"].cast(pa.string()).combine_chunks()
    return pc.coalesce(own, pa.scalar(topic)).cast(pa.dictionary(pa.int8(), pa.string()))


def without_empty(rows: pa.Table) -> pa.Table:
    """Return the rows without the columns that have only nulls; columns that a file lacks read as null."""
    return rows.select([name for name in rows.column_names if rows.column(name).null_count < rows.num_rows])


def write_file(log: Lake, naming: Naming, kind: str, partition: int, table: pa.Table, *, number: int = 0) -> DataFile:
    """Write rows of one kind and partition, with the `batch` and `seq` that they have, to one data file, durably.

    The file is named after the attempt, the kind, the partition and `number`, which together no other file may have.
    """
    batch, attempt = naming.batch, naming.attempt
    key = f"{MIXED_FOLDER}/{batch:020d}-{attempt}-{kind}.{partition}.{number}.parquet"
    if is_partitioned(naming.log_format):
        key = f"{partition_folder(kind, partition)}/{batch}-{attempt}-{number}.parquet"
    return _put(log, key, naming, [Part(kind, partition, table.num_rows)], table)


def _put(log: Lake, key: str, naming: Naming, parts: Sequence[Part], table: pa.Table) -> DataFile:
    """Write the rows, which are those of the parts one after the other, to one data file."""
    partitioned = is_partitioned(naming.log_format)
    content = as_parquet([table] if partitioned else _divided(table, parts))
    log.put_unnamed(key, content)
    batches = pc.min_max(table.column("batch") if table.num_rows else pa.array([naming.batch]))
    return DataFile(
        path=key,
        parts=tuple(parts),
        partitioned=partitioned,
        size=len(content),
        min_batch=batches["min"].as_py(),
        max_batch=batches["max"].as_py(),
        written_ms=naming.clock,
    )


def _divided(table: pa.Table, parts: Sequence[Part]) -> list[pa.Table]:
    """Return the rows of each part, with the columns that say whose they are."""
    counts = [part.rows for part in parts]
    of_part = np.repeat(np.arange(len(parts), dtype=np.int32), counts)
    kinds = pa.array([part.kind for part in parts]).dictionary_encode()  # each once, else Parquet repeats it per row
    whose = {
        "kind": kinds.take(pa.array(of_part)),
        "partition": pa.array(np.array([part.partition for part in parts], np.int32)[of_part]),
    }
    rows = pa.table(whose | dict(zip(table.column_names, table.columns, strict=True)))
    return [rows.slice(end - count, count) for end, count in zip(accumulate(counts), counts, strict=True)]


def folders_of(log_format: int, partitions: Iterable[int]) -> list[str]:
    """Return the folders in which batches and compactions of these partitions have files."""
    if not is_partitioned(log_format):
        return [MIXED_FOLDER]
    kinds = ("state", "emission", "late", "rejected")
    return [partition_folder(kind, partition) for kind in kinds for partition in partitions] + [
        partition_folder("meta", META_PARTITION)
    ]


def delete_attempt(log: Lake, log_format: int, batch: int, attempt: str, partitions: Iterable[int]) -> int:
    """Delete the data files of an attempt that is known to have failed; return how many were found.

    `partitions`: those whose rows it may have written. Ignore errors of the lake. Files that could not be deleted,
    and files that a task writes after its attempt has ended, are deleted by a later clean-up.
    """
    start, found = f"{batch if is_partitioned(log_format) else f'{batch:020d}'}-{attempt}-", list[str]()
    with suppress(EngineError):
        for folder in folders_of(log_format, partitions):
            found += _files_of(log, folder, start)
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
