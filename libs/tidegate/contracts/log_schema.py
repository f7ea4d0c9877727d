"""The schema of the operator log: its columns, its kinds of rows, and its format.

`docs/protocol.md` specifies this format for other programs. FORMAT changes when a reader of the old format would
misread the new one. The metadata of a batch is in `contracts.batch_metadata`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

FORMAT = 3
"""The format of a new log."""

PARTITIONED_FORMAT = 2
"""The newest format in which each kind and partition has a folder and files of its own, as Delta partition columns.

In format 1, in addition, all metadata is complete. A claim takes over such a log, which has format 2 from then on.
"""

READABLE_FORMATS = (1, 2, 3)

META_PARTITION = -1
"""Partition of `meta` rows, which belong to no Kafka partition."""

STEP_TOPIC = "step:"
"""How `topic` of late and rejected rows begins that a step within a pipeline refused; the step's name follows.

No topic of Kafka has such a name. These rows are no records of the input.
"""

Kind = Literal["meta", "state", "emission", "late", "rejected"]
PART_COLUMNS = ["kind", "partition"]
"""The columns that say whose rows they are: in format 3 ordinary columns, before that Delta partition columns."""

_COMMON = [
    pa.field("batch", pa.int64()),  # the batch that wrote the row; compaction keeps it
    pa.field("seq", pa.int64()),  # position within batch, partition and kind, from 0
    pa.field("op", pa.string()),  # state rows only: put, delete
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.binary()),  # as in a Kafka v2 record, varint count included; null: none
    pa.field("timestamp", pa.int64()),  # event time, ms
    pa.field("offset", pa.int64()),  # offset of the input record that the row shows; see PartitionMeta.raised
    pa.field("topic", pa.string()),  # topic of that record
    pa.field("window_start", pa.int64()),
    pa.field("window_end", pa.int64()),
    pa.field("cause", pa.string()),  # emissions: why; late and rejected rows: the reason
    pa.field("lateness", pa.int64()),  # late rows: T - timestamp, ms
    pa.field("bound", pa.int64()),  # late and too-far-ahead rows: the limit that the timestamp violates, ms
]


ORIGIN = (
    pa.field("origin_topic", pa.string()),  # late and rejected rows: the topic and the offset of the record
    pa.field("origin_offset", pa.int64()),  # that the row shows, or that caused it
)
"""The columns of an operator that reads several input topics, whose `offset` numbers the records of all of them."""


def is_partitioned(log_format: int) -> bool:
    """Return whether a log of the format has files of its own for each kind and partition, in folders."""
    return log_format <= PARTITIONED_FORMAT


def format_from_claim(log_format: int) -> int:
    """Return the format of a log after a claim: files of partitioned logs lack columns, so these stay partitioned."""
    # rule: format-upgrade/kept
    return PARTITIONED_FORMAT if is_partitioned(log_format) else FORMAT


def log_schema(operator_columns: Iterable[pa.Field] = (), *, log_format: int = FORMAT) -> pa.Schema:
    """Return the schema of an operator's log: whose rows they are, common columns, then the operator's own columns."""
    part = [pa.field("kind", pa.string()), pa.field("partition", pa.int32())]
    step = [] if is_partitioned(log_format) else [pa.field("step", pa.string())]  # of a pipeline; null: the only step
    return pa.schema([*part, *step, *_COMMON, *operator_columns])
