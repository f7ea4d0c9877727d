"""Decides whether Spark's checkpoint belongs to the log, and whether a Spark batch has to be run. Pure.

Spark's checkpoint is the truth about how far its sources were read; the log is the truth about everything else. Both
must belong to the same query. The checkpoint is at most one batch behind: Spark records a batch after its commit to the
log.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from tidegate.contracts.batch_metadata import BatchMeta, PartitionMeta
from tidegate.contracts.errors import StateError
from tidegate.runtime.batch_loop import next_metadata

STREAM = "spark:stream"
"""The input's name in the log. No Kafka topic can have this name."""


class BatchDecision(Enum):
    """What to do with a Spark batch."""

    RUN = "run"
    SKIP = "skip"


def first_meta(operator: str, table_id: str, clock: int, partitions: int) -> BatchMeta:
    """Return the metadata before the first claim: epoch 0, no records in any partition."""
    known = {partition: PartitionMeta(next_offset=0, query_offset=0) for partition in range(partitions)}
    return replace(next_metadata.first_meta(operator, table_id, clock, {STREAM: {}}), partitions=known)


def after_query_batch(meta: BatchMeta, spark_batch: int) -> BatchMeta:
    """Return the metadata of a commit that completes the Spark batch: the next one begins where this one ends."""
    partitions = {p: replace(known, query_offset=known.next_offset) for p, known in meta.partitions.items()}
    return replace(meta, query_batch=spark_batch, partitions=partitions)


def check_same_input(before: BatchMeta, partitions: int) -> None:
    """Raise StateError unless the log was written from a stream with this number of partitions."""
    if before.input != STREAM:
        raise StateError(
            f"the log of {before.operator} was written from a Kafka topic",
            value=before.input,
            remedy="give the operator another name",
        )
    if (had := len(before.partitions)) != partitions:
        raise StateError(
            f"the log of {before.operator} has a different number of partitions",
            value=f"{partitions}, was {had}",
            remedy=f"write partitions={had}; to spread keys otherwise give the operator another name",
        )


def check_same_query(before: BatchMeta, query_id: str | None, checkpoint: object) -> None:
    """Raise StateError if the log has data of another query.

    `query_id`: the query of the checkpoint folder; None if there is no checkpoint: then the log must have no data.
    """
    if before.query_id in (None, query_id):
        return
    problem = "Spark's checkpoint folder is gone" if query_id is None else "the log has the data of another Spark query"
    raise StateError(
        f"{problem}: it is unknown which records the log of {before.operator} has already",
        value=f"query {query_id} in {checkpoint}, the log's is {before.query_id}",
        remedy="bring that query's checkpoint folder back; "
        "or give the operator a new name to start from the source's first record",
    )


def decide_batch(newest: BatchMeta, query_id: str, spark_batch: int) -> BatchDecision:
    """Return RUN for the batch after the log's newest one and SKIP for the newest one itself.

    Raises StateError for any other batch, and for a batch of another query.
    """
    check_same_query(newest, query_id, "this run")
    if spark_batch == newest.query_batch + 1:
        return BatchDecision.RUN
    if spark_batch == newest.query_batch:
        return BatchDecision.SKIP
    behind = "the log" if spark_batch > newest.query_batch else "Spark's checkpoint"
    raise StateError(
        f"{behind} was set back: log and checkpoint no longer belong together",
        value=f"Spark batch {spark_batch}; the log of {newest.operator} has all up to {newest.query_batch}",
        remedy="restore both as of the same time, or give the operator a new name to start from the beginning",
    )
