"""Does Spark's checkpoint belong to the log, and is its batch to be run? Pure.

Spark's checkpoint is the truth about how far its sources were read; the log is the truth about everything else. Both
must tell of the same query, and the checkpoint is at most one batch behind: Spark notes a batch after it was committed.
"""

from __future__ import annotations

from enum import Enum

from tidegate.contracts.errors import StateError
from tidegate.contracts.schema import FORMAT, BatchMeta

STREAM = "spark:stream"
"""What a log calls its input; no Kafka topic can have this name."""


class Turn(Enum):
    """What to do with a batch that Spark hands over."""

    RUN = "run"
    SKIP = "skip"


def first_meta(operator: str, table_id: str, clock: int, partitions: int) -> BatchMeta:
    """The metadata before the first claim: epoch 0, no record in any partition."""
    starts = dict.fromkeys(range(partitions), 0)
    return BatchMeta(
        format=FORMAT,
        operator=operator,
        table_id=table_id,
        epoch=0,
        batch=-1,
        attempt="",
        action="claim",
        clock=clock,
        config="",
        offsets={STREAM: starts},
        query_offsets=starts,
    )


def check_same_input(before: BatchMeta, partitions: int) -> None:
    """Nothing, if the log was written from a stream in so many partitions; StateError, with the way on, if not."""
    if STREAM not in before.offsets:
        raise StateError(
            f"the log of {before.operator} was written from a Kafka topic",
            value=", ".join(before.offsets),
            remedy="give the operator another name",
        )
    if (had := len(before.offsets[STREAM])) != partitions:
        raise StateError(
            f"the log of {before.operator} has another number of partitions",
            value=f"{partitions}, was {had}",
            remedy=f"write partitions={had}; to spread keys otherwise give the operator another name",
        )


def check_same_query(before: BatchMeta, query_id: str | None, checkpoint: object) -> None:
    """Nothing, if the log has no data or its data came from that query; StateError, with the way on, if not.

    `query_id` is what the checkpoint folder says, None where there is none.
    """
    if before.query_id in (None, query_id):
        return
    problem = "Spark's checkpoint folder is gone" if query_id is None else "the log has the data of another Spark query"
    raise StateError(
        f"{problem}: nobody knows which records the log of {before.operator} has already",
        value=f"query {query_id} in {checkpoint}, the log's is {before.query_id}",
        remedy="bring that query's checkpoint folder back; "
        "or give the operator another name, so that it begins anew from the source's first record",
    )


def turn_of(newest: BatchMeta, query_id: str, spark_batch: int) -> Turn:
    """RUN the batch after the newest one of the log, SKIP that one itself; StateError for any other."""
    check_same_query(newest, query_id, "this run")
    if spark_batch == newest.query_batch + 1:
        return Turn.RUN
    if spark_batch == newest.query_batch:
        return Turn.SKIP
    behind = "the log" if spark_batch > newest.query_batch else "Spark's checkpoint"
    raise StateError(
        f"{behind} was set back: log and checkpoint no longer belong together",
        value=f"Spark batch {spark_batch}; the log of {newest.operator} has all up to {newest.query_batch}",
        remedy="bring both back as of the same time; or give the operator another name, so that it begins anew",
    )
