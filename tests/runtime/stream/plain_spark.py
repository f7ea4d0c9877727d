"""As much of Spark as the driver of a stream sees, in this process: batches of rows go through its tasks for real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from tidegate.contracts.records import Row

SCHEMA = pa.schema([("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64())])


def partition_of(key: bytes | None, partitions: int) -> int:
    """Where a key belongs here."""
    return crc32(key or b"") % partitions


class Answer(NamedTuple):
    """A row that a task gives back."""

    answer: bytes


@dataclass
class Frame:
    """One Spark batch, prepared: tasks of rows sorted by partition, in Arrow batches of `size`."""

    tasks: Sequence[pa.Table]
    size: int
    work: Callable[..., Iterator[pa.RecordBatch]] | None = None

    def mapInArrow(self, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> Frame:
        """The frame with the work that its tasks are to do."""
        assert schema == "answer binary"
        return Frame(self.tasks, self.size, work)

    def collect(self) -> list[Answer]:
        """What the tasks have answered."""
        assert self.work is not None
        done = [self.work(iter(rows.to_batches(max_chunksize=self.size))) for rows in self.tasks]
        return [Answer(answer) for task in done for batch in task for answer in batch.column("answer").to_pylist()]


class PlainColumns:
    """Prepares rows that stand in order already."""

    def __init__(self, size: int = 3) -> None:
        self._size = size

    def prepared(self, rows: Sequence[Row], partitions: int, tasks: int) -> Frame:
        """Each row in its partition, each partition in one task."""
        placed = sorted(((partition_of(row.key, partitions), row) for row in rows), key=lambda found: found[0])
        tables = [
            pa.Table.from_pylist(
                [
                    {"partition": partition, "key": row.key, "value": row.value, "timestamp": row.timestamp}
                    for partition, row in placed
                    if partition % tasks == task
                ],
                SCHEMA,
            )
            for task in range(tasks)
        ]
        return Frame(tables, self._size)


@dataclass
class PlainContext:
    """A SparkContext whose tasks run here; `failures` are raised, one by one, instead of running a job."""

    query: str = "query"
    defaultParallelism: int = 2
    items: list[Any] = field(default_factory=list)

    def getLocalProperty(self, name: str) -> str:
        """The id of the query."""
        assert name == "sql.streaming.queryId"
        return self.query

    def parallelize(self, items: Sequence[Any], _slices: int) -> PlainContext:
        """A job over the items."""
        return PlainContext(items=list(items))

    def mapPartitions(self, work: Callable[..., Any]) -> PlainContext:
        """The job with its work."""
        return PlainContext(items=list(work(iter(self.items))))

    def collect(self) -> list[Any]:
        """What came out."""
        return self.items


@dataclass
class PlainSpark:
    """A session."""

    sparkContext: PlainContext = field(default_factory=PlainContext)
