"""Write, read and check the Parquet data files of an operator log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tidegate.contracts.errors import EngineError, StateError
from tidegate.contracts.log_schema import PART_COLUMNS
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import check_log_exists
from tidegate.state.lake.port import Lake

ORDER = ("partition", "batch", "seq")
"""Order in which rows of a kind are read; within a partition it is the order in which things happened."""

ANY_BATCH = 2**63 - 1
"""At least as large as any batch number: no upper bound."""

ROW_GROUP_BYTES = 2 * 2**20
"""Approximate uncompressed size of a row group. A reader of a few batches reads at least one row group.

Larger ones were slower to write and to read, as they do not fit into a processor's cache; smaller ones take more bytes.
"""

_DICTIONARY = {"kind", "partition", "step", "op", "cause", "topic", "batch"}
_PARQUET_END = b"PAR1"
_NO_STATISTICS = {"key", "value", "headers"}


class Part(NamedTuple):
    """The rows of one kind and partition in a data file: their number."""

    kind: str
    partition: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One Parquet file of the log, or some of its parts, with rows of batches `min_batch` to `max_batch`, inclusive.

    `path` is its key in the log, `size` is that of the whole file in bytes, and `written_ms` is the clock of the batch
    that wrote it. `parts`: whose rows it has; None if another program wrote the file, so that it is not known yet.
    `partitioned`: it is of a log with partition columns and has one part, which its rows do not name.
    """

    path: str
    parts: tuple[Part, ...] | None
    partitioned: bool = False
    size: int
    min_batch: int
    max_batch: int
    written_ms: int

    @property
    def kind(self) -> str:
        """Return the kind of the only part."""
        return self._only.kind

    @property
    def partition(self) -> int:
        """Return the partition of the only part."""
        return self._only.partition

    @property
    def rows(self) -> int:
        """Return the number of rows in all parts that are known."""
        return sum(part.rows for part in self.parts or ())

    @property
    def is_mixed(self) -> bool:
        """Return whether it has several parts."""
        return self.parts is not None and len(self.parts) > 1

    @property
    def _only(self) -> Part:
        (part,) = self.parts or ()
        return part

    def part(self, part: Part) -> DataFile:
        """Return the file as one that has this part alone."""
        return self if self.parts == (part,) else replace(self, parts=(part,))


def as_parquet(tables: Sequence[pa.Table]) -> bytes:
    """Return the content of a Parquet file with the rows of the tables, which have one schema; each has row groups of
    its own."""
    schema = tables[0].schema
    integers = [column.name for column in schema if pa.types.is_integer(column.type)]
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=1,
        store_schema=False,  # else readers would get dictionary columns instead of strings
        use_dictionary=[name for name in schema.names if name in _DICTIONARY],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in integers if name not in _DICTIONARY},
        write_statistics=[name for name in schema.names if name not in _NO_STATISTICS],
    ) as writer:
        for table in tables:
            rows = max(1, table.num_rows * ROW_GROUP_BYTES // max(table.nbytes, ROW_GROUP_BYTES))
            writer.write_table(table, row_group_size=rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_files(
    log: Lake,
    files: Iterable[DataFile],
    schema: pa.Schema,
    columns: Sequence[str] | None = None,
    *,
    after_batch: int = -1,
    up_to: int = ANY_BATCH,
    keys: Sequence[bytes] | None = None,
) -> pa.Table:
    """Return the files' rows of batches above `after_batch` and not above `up_to`, in ORDER; of these keys alone.

    Of each file its one part is read; all are of one kind. If they are of several partitions, they have to be all parts
    of the kind in these files. The result has the given columns of the log's schema (None: all); columns that a file
    lacks are null.
    """
    wanted = list(schema.names if columns is None else columns)
    ordered = sorted(files, key=lambda file: (file.partition, file.min_batch))
    # rule: part-alone
    filtered = (ds.field("batch") > after_batch) & (ds.field("batch") <= up_to) & _of_parts(ordered)
    if keys is not None:
        filtered &= ds.field("key").isin(pa.array(keys, pa.binary()))
    rows = _scan(log, ordered, schema, list(dict.fromkeys([*wanted, *ORDER])), filtered)
    return in_order(rows).select(wanted)


def with_parts(log: Lake, file: DataFile, schema: pa.Schema) -> DataFile:
    """Return the file with its parts, for which the columns that name them are read."""
    rows = _scan(log, [file], schema, PART_COLUMNS)
    found = Counter(zip(*(rows.column(name).to_pylist() for name in PART_COLUMNS), strict=True))
    # rule: parts-of-foreign-files
    return replace(file, parts=tuple(Part(kind, partition, rows) for (kind, partition), rows in sorted(found.items())))


def _of_parts(files: Sequence[DataFile]) -> ds.Expression:
    """Return the condition that the rows are of these parts; always true of a partitioned log's files."""
    if not files or files[0].partitioned:
        return ds.scalar(True)
    partitions = sorted({file.partition for file in files})
    return (ds.field("kind") == files[0].kind) & ds.field("partition").isin(pa.array(partitions, pa.int32()))


def _scan(
    log: Lake,
    files: Sequence[DataFile],
    schema: pa.Schema,
    columns: Sequence[str],
    filtered: ds.Expression | None = None,
) -> pa.Table:
    with disk.disk_errors(log.place), _damage_named(log):
        return dataset_of(log, files, schema).to_table(list(columns), filter=filtered)


def dataset_of(log: Lake, files: Iterable[DataFile], schema: pa.Schema) -> ds.Dataset:
    """Return all rows of the files as a dataset of which nothing has been read yet; what a file lacks is null."""
    each = {file.path: file for file in files}
    stored, parquet = log.files({path: file.size for path, file in each.items()}), ds.ParquetFileFormat()
    fragments = [
        parquet.make_fragment(path, stored, _constants(file, schema), file_size=file.size)
        for path, file in each.items()
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, stored)


def _constants(file: DataFile, schema: pa.Schema) -> ds.Expression | None:
    """Return an expression with the values of the columns that a file of a partitioned log does not have."""
    if not file.partitioned:
        return None
    values = {"kind": file.kind, "partition": file.partition}
    kind, partition = (ds.field(name) == pa.scalar(values[name], schema.field(name).type) for name in PART_COLUMNS)
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


def require_whole(log: Lake, files: Iterable[DataFile]) -> None:
    """Raise EngineError unless each file exists here with the size that its task reported, and ends as Parquet does.

    Executors may have another lake under the same path, and a network file system may lose data that it had accepted.
    An object store that has acknowledged a file has it; its files are not read again.
    """
    if not log.place.is_local:
        return
    for file in files:
        if fault := _fault(log, file):
            raise EngineError(
                "a data file that a task has written is missing or incomplete on the driver's machine",
                value=f"{log.place / file.path}: {fault}",
                remedy="give the driver and all executors the same lake under the same path; nothing was committed",
            )


def _fault(log: Lake, file: DataFile) -> str | None:
    """Return what is wrong with the file. One read tells its end, and that nothing follows it."""
    end = log.get_range(file.path, max(0, file.size - len(_PARQUET_END)), len(_PARQUET_END) + 1)
    if end is None:
        return "No such file or directory"
    # rule: committed-files-whole/size
    if len(end) != len(_PARQUET_END):
        return f"not of {file.size} bytes"
    # rule: committed-files-whole/end
    return None if end == _PARQUET_END else "its Parquet footer is missing"


@contextmanager
def _damage_named(log: Lake) -> Iterator[None]:
    """Raise StateError, naming the file, if a file is missing or damaged; Unavailable if the lake cannot be read."""
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        check_log_exists(log)
        raise StateError(
            f"a data file of the operator log is missing or damaged: {error}",
            value=log.place,
            remedy="was the log vacuumed? Bring the log's files back from a copy",
        ) from error
