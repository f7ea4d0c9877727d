"""Processes the rows of a Spark batch partition by partition, inside a Spark task.

A record's offset is the number of records that its partition has had before it. Offsets continue from batch to batch,
as in a topic.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tidegate.contracts.errors import EngineError
from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.records import Records
from tidegate.kernels.columns import records_of
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.runtime.kafka.fetch import Fetched
from tidegate.runtime.publishing.encoding import Opened, Prepared
from tidegate.runtime.stream.merging import STREAM, merge_order
from tidegate.runtime.task.messages import (
    Attempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
)
from tidegate.runtime.task.ports import Worked
from tidegate.runtime.task.run import run_plans

ANSWER = "answer binary"
"""The schema of a task's output: one pickled PartitionResult or PartitionFailure per row."""

_BINARY = pa.large_binary()  # 32-bit positions end at 2 GiB
_ROWS = pa.schema([("key", _BINARY), ("value", _BINARY), ("timestamp", pa.int64())])
_ROWS_OF_STREAMS = _ROWS.append(pa.field(STREAM, pa.int8()))


@dataclass(frozen=True, kw_only=True)
class StreamPort:
    """Reads records from a Spark batch's rows; output stays in the lake. `begin`: the offset of the first row."""

    rows: pa.Table
    begin: int

    def read_together(self, plans: Sequence[PartitionPlan]) -> Mapping[int, Fetched]:
        """Return nothing: a task reads the rows of one partition after the other."""
        return {}

    def read(self, plan: PartitionPlan) -> Fetched:
        """Return the records from the plan's start on; those before it were committed by an earlier attempt."""
        records = records_from(self.rows.slice(plan.start - self.begin), plan.start)
        return Fetched(records=records, next_offset=self.begin + self.rows.num_rows)

    def topics(self) -> Mapping[str, TopicMetadata]:
        """Return none: there are no topics."""
        return {}

    def prepare(self, worked: Sequence[Worked]) -> None:
        """Return None: no output is published."""

    def open(self, prepared: Prepared) -> Opened:
        """Raise AssertionError: there is never any output to send."""
        raise AssertionError("no output is published")


def task_function(
    attempt: Attempt, plans: Mapping[int, PartitionPlan], begins: Mapping[int, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that a task runs on its rows.

    The rows are sorted by partition; the function yields one answer for each partition that has rows.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition, rows in by_partition(batches):
            port = StreamPort(rows=in_order(rows), begin=begins[partition])
            refusal = _refusal(partition)
            answers = run_plans(attempt, [plans[partition]], port) if refusal is None else [refusal]
            yield from map(_packed, answers)

    return work


def unpacked(answer: bytes) -> PartitionResult | PartitionFailure:
    """Return the result or failure that a task has packed into a row."""
    found: PartitionResult | PartitionFailure = pickle.loads(answer)
    return found


def by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Yield each partition with all of its rows, in order. The batches must be sorted by their column `partition`."""
    runs = (run for batch in batches if batch.num_rows for run in _runs(batch))
    for partition, found in groupby(runs, key=itemgetter(0)):
        yield partition, pa.Table.from_batches([rows for _, rows in found])


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    partitions = batch.column("partition").to_numpy()
    changes = np.flatnonzero(np.diff(partitions)) + 1
    for first, end in pairwise([0, *changes.tolist(), len(partitions)]):
        yield int(partitions[first]), batch.slice(first, end - first)


def in_order(rows: pa.Table) -> pa.Table:
    """Return the rows of a partition in the order of their offsets: those of two streams are merged by time.

    The number of a row's stream is its `port` then.
    """
    if STREAM not in rows.column_names:
        return rows
    of_streams = rows.select(_ROWS_OF_STREAMS.names).cast(_ROWS_OF_STREAMS)
    times = of_streams.column("timestamp").fill_null(NO_TIMESTAMP).to_numpy()
    merged = of_streams.take(merge_order(of_streams.column(STREAM).to_numpy(), times))
    return merged.rename_columns([*_ROWS.names, "port"])


def records_from(rows: pa.Table, first_offset: int) -> Records:
    """Return the rows as records with offsets from `first_offset` on, without headers; null times are NO_TIMESTAMP.

    With a column `port` it says which input each record is of.
    """
    count = rows.num_rows
    whole = rows.select(_ROWS.names).cast(_ROWS).combine_chunks()
    columns = {name: _one(whole.column(name)) for name in _ROWS.names}
    columns["timestamp"] = columns["timestamp"].fill_null(NO_TIMESTAMP)
    columns["offset"] = pa.array(np.arange(first_offset, first_offset + count))
    columns["headers"] = pa.nulls(count, pa.binary())
    records = records_of(pa.record_batch(columns))
    if "port" not in rows.column_names:
        return records
    return replace(records, port=rows.column("port").to_numpy().astype(np.int8))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _packed(answer: PartitionResult | PartitionFailure) -> pa.RecordBatch:
    return pa.record_batch({"answer": pa.array([pickle.dumps(answer)], pa.binary())})


def _refusal(partition: int) -> PartitionFailure | None:
    """Return a failure if Spark has retried this task: only the driver may retry, with a new attempt."""
    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        return None
    error = EngineError("Spark lost a task", value=f"partition {partition}", remedy="see what became of its executor")
    return PartitionFailure(partition=partition, error=error, trace="")
