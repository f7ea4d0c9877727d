"""The operator log: its columns, its kinds of rows, and the metadata of a batch.

`docs/protocol.md` specifies this format for other programs. FORMAT changes when a reader of the old format would
misread the new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tidegate.contracts.patches import changes, differs, field_types, patched, typed

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
    pa.field("offset", pa.int64()),  # offset of the input record that the row shows; see BatchMeta.raised
    pa.field("topic", pa.string()),  # topic of that record
    pa.field("window_start", pa.int64()),
    pa.field("window_end", pa.int64()),
    pa.field("cause", pa.string()),  # emissions: why; late and rejected rows: the reason
    pa.field("lateness", pa.int64()),  # late rows: T - timestamp, ms
    pa.field("bound", pa.int64()),  # late and too-far-ahead rows: the limit that the timestamp missed, ms
]


def log_schema(operator_columns: Iterable[pa.Field] = ()) -> pa.Schema:
    """Return the schema of an operator's log: partition columns, common columns, then the operator's own columns."""
    return pa.schema([pa.field("kind", pa.string()), pa.field("partition", pa.int32()), *_COMMON, *operator_columns])


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of each record of a batch, and what is held after the batch.

    records_in = applied + superseded + late + rejected.
    """

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
        """Return whether every input record is counted exactly once."""
        return self.records_in == self.applied + self.superseded + self.late + self.rejected


class Pin(NamedTuple):
    """A version of a table's log, and the log's table id; "" if older metadata did not record the id."""

    version: int
    table_id: str

    @classmethod
    def from_raw(cls, raw: int | Sequence[Any]) -> Pin:
        """Return the pin that metadata holds for a table; older metadata has only the version."""
        return Pin(raw, "") if isinstance(raw, int) else Pin(*raw)


Raised = tuple[tuple[int, int], ...]
"""Pairs (from, by), ascending: records at offsets from `from` on in the log are `by` lower in the input."""


OF_THE_BATCH = {"of": "the batch"}
"""Marks a field that describes its own batch alone. Other fields keep the value of the batch before unless changed."""


@dataclass(frozen=True, kw_only=True)
class BatchMeta:
    """Everything that is known after a batch. Maps are complete: they have all partitions, not only those of the batch.

    A log entry holds either all of this or what the batch changed of it. A new field needs nothing but its line here.

    `last` is the (batch, attempt) of the newest commit that changed a partition's state. `snapshot` is the batch up to
    which its state was rewritten as a whole. `output` is the newest batch with output to publish. `active` is the clock
    of the newest batch with records of the partition, from which idleness is measured. `advanced` is the clock of its
    newest idle advance.
    """

    format: int
    operator: str
    table_id: str
    epoch: int
    batch: int
    attempt: str
    action: str  # claim, apply, batch, idle, flush, compaction, skip, settle
    clock: int
    config: str
    query_id: str | None = None  # if the input is a streaming DataFrame: id of the Spark query
    query_batch: int = -1  # the newest Spark micro-batch that is completely in the log
    query_offsets: dict[int, int] = field(default_factory=dict)  # per partition, where the next micro-batch begins
    topics: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    raised: dict[int, Raised] = field(default_factory=dict)  # where the input used offsets again
    epochs: dict[int, int] = field(default_factory=dict)  # the leader epoch of the record batch before the next offset
    stream_time: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, str]] = field(default_factory=dict)
    counts: dict[int, Counts] = field(default_factory=dict, metadata=OF_THE_BATCH)
    totals: dict[int, Counts] = field(default_factory=dict)
    measures: dict[int, dict[str, int]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    opened: tuple[int, ...] = field(default=(), metadata=OF_THE_BATCH)
    snapshot: dict[int, int] = field(default_factory=dict)
    output: dict[int, int] = field(default_factory=dict)
    active: dict[int, int] = field(default_factory=dict)
    advanced: dict[int, int] = field(default_factory=dict)
    compacted: int = 0  # the batch of the newest compaction
    measured: dict[int, dict[str, int]] = field(default_factory=dict)  # the measures of all batches, aggregated
    figures: dict[str, int] = field(default_factory=dict)  # aggregates over all batches; runtime.telemetry.metrics
    skips: tuple[tuple[int, int, int, int, int], ...] = ()  # newest `skipped`: (batch, clock, partition, from, to)
    recorded: int = -1  # the batch up to which metadata is in `meta` rows
    inputs: dict[str, Pin] = field(default_factory=dict)  # per table that was read: the version read
    published_from: int = 0  # the batch in which `output` was configured
    dead_letters: str | None = None  # topic of late and rejected records
    dead_letters_from: int = 0  # the batch in which that topic was configured
    # offsets [from, to) that were lost before they were read:
    skipped: dict[int, tuple[int, int]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    # action `settle`: what a person decided about the newest output: (batch, `published` or `unpublished`):
    settled: dict[int, tuple[int, str]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    # how local states were recovered, where they did not simply continue:
    recovered: dict[int, str] = field(default_factory=dict, metadata=OF_THE_BATCH)
    settings: dict[str, Any] = field(default_factory=dict)  # the configuration, as a file would have it
    applied: str = ""  # hash of the configuration that was applied to the held state
    remembered: dict[int, int] = field(default_factory=dict)  # event time before which closed windows are forgotten
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)  # of a table: epoch and clock of each lease
    floor: dict[int, int] = field(default_factory=dict)  # of a table: first event time with all versions kept
    needs: dict[int, int] = field(default_factory=dict)  # of a reader: earliest event time that it may still look up
    # event time up to which the table that the batch read was complete:
    gates: dict[int, int] = field(default_factory=dict, metadata=OF_THE_BATCH)

    def to_json(self) -> str:
        """Return all metadata as one line of JSON; inverse of `from_json`."""
        return _one_line(vars(self))

    @classmethod
    def from_json(cls, text: str) -> BatchMeta:
        """Return the metadata that `to_json` wrote; unknown fields are ignored."""
        return after_document(None, json.loads(text))

    def changes_to_json(self, before: BatchMeta, base: int) -> str:
        """Return one line of JSON: what identifies the batch, its own fields, and what it changed in all other fields.

        `base`: the batch of the newest complete metadata, where a reader begins.
        """
        own = {name: value for name in _OWN if (value := getattr(self, name))}
        kept = {name: (getattr(before, name), getattr(self, name)) for name in _KEPT}
        changed = {name: changes(was, now) for name, (was, now) in kept.items() if differs(was, now)}
        return _one_line({"base": base, **{name: getattr(self, name) for name in _IDENTITY}, **own, **changed})


def _default(of: Field[Any]) -> Any:
    return of.default if of.default_factory is MISSING else of.default_factory()


_DEFAULTS = {each.name: _default(each) for each in fields(BatchMeta)}
_OWN = tuple(each.name for each in fields(BatchMeta) if each.metadata == OF_THE_BATCH)
_IDENTITY = (*(name for name, default in _DEFAULTS.items() if default is MISSING), "compacted")
"""The fields that every document has. They include all fields that are looked up in single entries of the log."""
_KEPT = tuple(name for name in _DEFAULTS if name not in (*_OWN, *_IDENTITY))
_NOTHING_OWN = {name: _DEFAULTS[name] for name in _OWN}

Document = dict[str, Any]
"""Metadata as written: complete, or, with `base`, what changed since the batch before."""


def is_complete(document: Document) -> bool:
    """Return whether the document is complete without earlier ones."""
    return "base" not in document


def after_document(before: BatchMeta | None, document: Document) -> BatchMeta:
    """Return the metadata that a document describes; `before` is the metadata of the batch before it.

    Raise ValueError if the document has only changes and `before` is None.
    """
    said = {name: typed(hint, document[name]) for name, hint in field_types(BatchMeta).items() if name in document}
    if is_complete(document):
        return BatchMeta(**said)
    if before is None:
        raise ValueError(f"batch {document['batch']} says what it changed, but the metadata before it is not there")
    kept = {name: patched(getattr(before, name), said[name]) for name in _KEPT if name in said}
    # rule: metadata-builds-up/merged
    return replace(before, **_NOTHING_OWN | said | kept)


def _one_line(document: Document) -> str:
    return json.dumps(document, default=vars, separators=(",", ":"))
