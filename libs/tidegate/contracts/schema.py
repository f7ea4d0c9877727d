"""The operator log: its columns, its kinds and the metadata of a batch.

`docs/protocol.md` specifies this format for other programs; FORMAT changes when a reader of the old one would err.
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
"""In format 1 all metadata is complete; a claim takes such a log over, and it is of format 2 from then on."""

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
    pa.field("offset", pa.int64()),  # of the input record that the row shows; see BatchMeta.raised
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

    @classmethod
    def from_raw(cls, raw: int | Sequence[Any]) -> Pin:
        """Return what metadata has for a table: older metadata has the version alone."""
        return Pin(raw, "") if isinstance(raw, int) else Pin(*raw)


Raised = tuple[tuple[int, int], ...]
"""(from, by), ascending: records that the log has at offsets `from` and later are in the input `by` before that."""


OF_THE_BATCH = {"of": "the batch"}
"""Marks a field that says something of its batch alone; the others are those of the batch before, unless changed."""


@dataclass(frozen=True, kw_only=True)
class BatchMeta:
    """Everything that is known after a batch; the maps are complete: all partitions, not those touched alone.

    What is written is that, or what a batch changed of it: a new field needs nothing but its line here.
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
    action: str  # claim, apply, batch, idle, flush, compaction, skip, settle
    clock: int
    config: str
    query_id: str | None = None  # where a streaming DataFrame is the input: of the Spark query
    query_batch: int = -1  # the newest Spark batch that is wholly in the log
    query_offsets: dict[int, int] = field(default_factory=dict)  # per partition, where the next one begins
    topics: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    raised: dict[int, Raised] = field(default_factory=dict)  # where the input used offsets for a second time
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
    measured: dict[int, dict[str, int]] = field(default_factory=dict)  # what the measures of batches came to
    figures: dict[str, int] = field(default_factory=dict)  # what the operator's batches came to; runtime.metrics
    skips: tuple[tuple[int, int, int, int, int], ...] = ()  # newest (batch, clock, partition, from, to) of `skipped`
    recorded: int = -1  # the batch up to which the metadata of batches is in `meta` rows
    inputs: dict[str, Pin] = field(default_factory=dict)  # of each table that was read, what was read
    published_from: int = 0  # the batch in which `output` was configured
    dead_letters: str | None = None  # topic of the refused records
    dead_letters_from: int = 0  # the batch in which it was configured
    # offsets [from, to) that were lost unread:
    skipped: dict[int, tuple[int, int]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    # with `settle`, what a person said of the newest output, [batch, `published` or `unpublished`]:
    settled: dict[int, tuple[int, str]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    # how local states came back, other than by going on:
    recovered: dict[int, str] = field(default_factory=dict, metadata=OF_THE_BATCH)
    settings: dict[str, Any] = field(default_factory=dict)  # the configuration, as it would be written
    applied: str = ""  # the configuration (its hash) that what is held has met
    remembered: dict[int, int] = field(default_factory=dict)  # event time before which a shorter memory has forgotten
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)  # of a table: epoch and clock of their leases
    floor: dict[int, int] = field(default_factory=dict)  # of a table: the first time whose versions are all kept
    needs: dict[int, int] = field(default_factory=dict)  # of a reader: the earliest time that it may still look up
    # the event time up to which the table was complete that the batch read:
    gates: dict[int, int] = field(default_factory=dict, metadata=OF_THE_BATCH)

    def to_json(self) -> str:
        """Return all of it as one line of JSON; inverse of `from_json`."""
        return _one_line(vars(self))

    @classmethod
    def from_json(cls, text: str) -> BatchMeta:
        """Return the metadata that `to_json` wrote; unknown fields are ignored."""
        return after_document(None, json.loads(text))

    def changes_to_json(self, before: BatchMeta, base: int) -> str:
        """Return as one line of JSON what identifies the batch, what is its own, and what it changed of the rest.

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
"""What every document has: what is asked of single entries of the log is among it."""
_KEPT = tuple(name for name in _DEFAULTS if name not in (*_OWN, *_IDENTITY))
_NOTHING_OWN = {name: _DEFAULTS[name] for name in _OWN}

Document = dict[str, Any]
"""Metadata as it is written: complete, or with `base` what changed against the batch before."""


def is_complete(document: Document) -> bool:
    """Return whether the document stands for itself."""
    return "base" not in document


def after_document(before: BatchMeta | None, document: Document) -> BatchMeta:
    """Return the metadata that a document stands for, where `before` is that of the batch before it.

    ValueError for changes against metadata that is not there.
    """
    said = {name: typed(hint, document[name]) for name, hint in field_types(BatchMeta).items() if name in document}
    if is_complete(document):
        return BatchMeta(**said)
    if before is None:
        raise ValueError(f"batch {document['batch']} says what it changed, but the metadata before it is not there")
    kept = {name: patched(getattr(before, name), said[name]) for name in _KEPT if name in said}
    return replace(before, **_NOTHING_OWN | said | kept)


def _one_line(document: Document) -> str:
    return json.dumps(document, default=vars, separators=(",", ":"))
