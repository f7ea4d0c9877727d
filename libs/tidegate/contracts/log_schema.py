"""The schema of the operator log: its columns, its kinds of rows, and its format.

`docs/protocol.md` specifies this format for other programs. FORMAT changes when a reader of the old format would
misread the new one. The metadata of a batch is in `contracts.batch_metadata`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import pyarrow as pa

FORMAT = 2
READABLE_FORMATS = (1, 2)
"""In format 1 all metadata is complete. A claim takes over such a log, which has format 2 from then on."""

META_PARTITION = -1
"""Partition of `meta` rows, which belong to no Kafka partition."""

Kind = Literal["meta", "state", "emission", "late", "rejected"]
PARTITION_COLUMNS = ["kind", "partition"]

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


def log_schema(operator_columns: Iterable[pa.Field] = ()) -> pa.Schema:
    """Return the schema of an operator's log: partition columns, common columns, then the operator's own columns."""
    return pa.schema([pa.field("kind", pa.string()), pa.field("partition", pa.int32()), *_COMMON, *operator_columns])
