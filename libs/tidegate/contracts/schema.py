"""The operator log: its columns, its kinds and the metadata of a batch. May import: the standard library, pyarrow.

`docs/protocol.md` specifies this format for other programs; FORMAT changes when a reader of the old one would err.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa

FORMAT = 1
META_PARTITION = -1
"""`meta` rows belong to no Kafka partition."""

Kind = Literal["meta", "state", "emission", "late", "rejected"]
PARTITION_COLUMNS = ["kind", "partition"]

_COMMON = [
    pa.field("batch", pa.int64()),  # the batch that wrote the row; compaction keeps it
    pa.field("seq", pa.int64()),  # order within batch, partition and kind, from 0
    pa.field("op", pa.string()),  # state rows: put, delete
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.binary()),  # Kafka's v2 encoding, varint count included; null: none
    pa.field("timestamp", pa.int64()),  # event time, ms
    pa.field("offset", pa.int64()),  # of the input record that the row shows
    pa.field("topic", pa.string()),  # of that record
    pa.field("window_start", pa.int64()),
    pa.field("window_end", pa.int64()),
    pa.field("cause", pa.string()),  # emission: why; late and rejected: the reason
    pa.field("lateness", pa.int64()),  # late rows: T - timestamp, ms
    pa.field("bound", pa.int64()),  # late and too-far-ahead rows: the timestamp that was missed, ms
]


def log_schema(operator_columns: Iterable[pa.Field] = ()) -> pa.Schema:
    """The schema of an operator's log: partition columns, common columns, then what the operator adds."""
    return pa.schema([pa.field("kind", pa.string()), pa.field("partition", pa.int32()), *_COMMON, *operator_columns])


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Where each record of a batch went: in = applied + superseded + late + rejected; and what is held after it."""

    records_in: int = 0
    applied: int = 0
    superseded: int = 0
    late: int = 0
    rejected: int = 0
    emitted: int = 0
    held: int = 0
    held_bytes: int = 0

    @property
    def balanced(self) -> bool:
        """True when every input record has exactly one count."""
        return self.records_in == self.applied + self.superseded + self.late + self.rejected


class Pin(NamedTuple):
    """A version of a table's log, and the log's table id; "" where older metadata did not note it."""

    version: int
    table_id: str


@dataclass(frozen=True, kw_only=True)
class BatchMeta:
    """Everything that a commit says about its batch; the maps are complete: all partitions, not those touched alone.

    `last` is the (batch, attempt) of the newest commit that changed a partition's state; `snapshot` the batch up to
    which its state was rewritten whole; `output` the newest batch with emissions to publish; `active` the clock of the
    newest batch with records of the partition, from which idleness is counted; `advanced` that of its newest idle
    advance.
    """

    format: int
    operator: str
    table_id: str
    epoch: int
    batch: int
    attempt: str
    action: str  # claim, apply, batch, idle, flush, compaction, skip
    clock: int
    config: str
    query_id: str | None = None  # where a streaming DataFrame is the input: of the Spark query
    query_batch: int = -1  # the newest Spark batch that is wholly in the log
    query_offsets: dict[int, int] = field(default_factory=dict)  # per partition, where the next one begins
    topics: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    stream_time: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, str]] = field(default_factory=dict)
    counts: dict[int, Counts] = field(default_factory=dict)
    totals: dict[int, Counts] = field(default_factory=dict)
    measures: dict[int, dict[str, int]] = field(default_factory=dict)
    opened: tuple[int, ...] = ()
    snapshot: dict[int, int] = field(default_factory=dict)
    output: dict[int, int] = field(default_factory=dict)
    active: dict[int, int] = field(default_factory=dict)
    advanced: dict[int, int] = field(default_factory=dict)
    compacted: int = 0  # the batch of the newest compaction
    inputs: dict[str, Pin] = field(default_factory=dict)  # of each table that was read, what was read
    published_from: int = 0  # the batch in which `output` was configured
    dead_letters: str | None = None  # topic of the refused records
    dead_letters_from: int = 0  # the batch in which it was configured
    skipped: dict[int, tuple[int, int]] = field(default_factory=dict)  # offsets [from, to) that were lost unread
    recovered: dict[int, str] = field(default_factory=dict)  # how local states came back, other than by going on
    settings: dict[str, Any] = field(default_factory=dict)  # the configuration, as it would be written
    applied: str = ""  # the configuration (its hash) that what is held has met
    remembered: dict[int, int] = field(default_factory=dict)  # event time before which a shorter memory has forgotten

    def to_json(self) -> str:
        """One line of JSON; inverse of `from_json`."""
        return json.dumps(vars(self), default=vars, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchMeta:
        """The metadata that `to_json` wrote; keys of a later minor addition are ignored."""
        known = cls.__dataclass_fields__
        raw: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in known}
        for name in (
            "stream_time",
            "measures",
            "snapshot",
            "output",
            "active",
            "advanced",
            "query_offsets",
            "recovered",
            "remembered",
        ):
            raw[name] = {int(partition): value for partition, value in raw.get(name, {}).items()}
        for name in ("counts", "totals"):
            raw[name] = {int(partition): Counts(**value) for partition, value in raw.get(name, {}).items()}
        raw["offsets"] = {
            topic: {int(partition): offset for partition, offset in reached.items()}
            for topic, reached in raw.get("offsets", {}).items()
        }
        raw["last"] = {int(partition): (batch, attempt) for partition, (batch, attempt) in raw.get("last", {}).items()}
        raw["skipped"] = {int(partition): (start, end) for partition, (start, end) in raw.get("skipped", {}).items()}
        raw["inputs"] = {table: _pin(read) for table, read in raw.get("inputs", {}).items()}
        raw["opened"] = tuple(raw.get("opened", ()))
        return cls(**raw)


def _pin(read: int | Sequence[Any]) -> Pin:
    """What `inputs` has for a table: older metadata has the version alone."""
    return Pin(read, "") if isinstance(read, int) else Pin(*read)
