"""The rows of a Spark batch on their way through the partitions of an operator, inside a Spark task.

A record's offset is the number of records that its partition has had before it: it goes on from batch to batch, as in a
topic, and says what came first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tidegate.contracts.errors import EngineError
from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records
from tidegate.kernels.columns import records_of
from tidegate.runtime.kafka.fetch import Fetched
from tidegate.runtime.messages import (
    Attempt,
    PartitionFailure,
    PartitionPlan,
    PartitionResult,
)
from tidegate.runtime.task.run import run_plan

ANSWER = "answer binary"
"""The schema of what a task gives back: a pickled PartitionResult or PartitionFailure a row."""

_BINARY = pa.large_binary()  # 32-bit positions would end at 2 GiB
_ROWS = pa.schema([("key", _BINARY), ("value", _BINARY), ("timestamp", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class StreamPort:
    """Records out of the rows that Spark has brought; emissions stay in the lake. `begin`: the first row's offset."""

    rows: pa.Table
    begin: int

    def read(self, plan: PartitionPlan) -> Fetched:
        """The records that come at the plan's start or later: those before it were committed by an earlier try."""
        records = records_from(self.rows.slice(plan.start - self.begin), plan.start)
        return Fetched(records=records, next_offset=self.begin + self.rows.num_rows)

    def open(self, plan: PartitionPlan, step: StepResult, next_offset: int) -> None:
        """Nothing is published."""


def work_of(
    attempt: Attempt, plans: Mapping[int, PartitionPlan], begins: Mapping[int, int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task runs on its rows, sorted by partition; it answers for each partition with rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for partition, rows in by_partition(batches):
            port = StreamPort(rows=rows, begin=begins[partition])
            yield _packed(_refusal(partition) or run_plan(attempt, plans[partition], port))

    return work


def unpacked(answer: bytes) -> PartitionResult | PartitionFailure:
    """What a task has answered."""
    found: PartitionResult | PartitionFailure = pickle.loads(answer)
    return found


def by_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """Each partition with all of its rows, in their order. The batches are sorted by their column `partition`."""
    runs = (run for batch in batches if batch.num_rows for run in _runs(batch))
    for partition, found in groupby(runs, key=itemgetter(0)):
        yield partition, pa.Table.from_batches([rows for _, rows in found])


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    partitions = batch.column("partition").to_numpy()
    changes = np.flatnonzero(np.diff(partitions)) + 1
    for first, end in pairwise([0, *changes.tolist(), len(partitions)]):
        yield int(partitions[first]), batch.slice(first, end - first)


def records_from(rows: pa.Table, first_offset: int) -> Records:
    """The rows as records with the offsets from `first_offset` on; null times are NO_TIMESTAMP; no headers."""
    count = rows.num_rows
    whole = rows.select(_ROWS.names).cast(_ROWS).combine_chunks()
    columns = {name: _one(whole.column(name)) for name in _ROWS.names}
    columns["timestamp"] = columns["timestamp"].fill_null(NO_TIMESTAMP)
    columns["offset"] = pa.array(np.arange(first_offset, first_offset + count))
    columns["headers"] = pa.nulls(count, pa.binary())
    return records_of(pa.record_batch(columns))


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _packed(answer: PartitionResult | PartitionFailure) -> pa.RecordBatch:
    return pa.record_batch({"answer": pa.array([pickle.dumps(answer)], pa.binary())})


def _refusal(partition: int) -> PartitionFailure | None:
    """Why this task must not work: Spark has tried it before, and only the driver may try again, with a new attempt."""
    context = TaskContext.get()
    if context is None or context.attemptNumber() == 0:
        return None
    error = EngineError("Spark lost a task", value=f"partition {partition}", remedy="see what became of its executor")
    return PartitionFailure(partition=partition, error=error, trace="")
