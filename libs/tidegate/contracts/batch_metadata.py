"""The metadata of a batch: what an operator knows after it, and its form as JSON in the operator log.

`docs/protocol.md` specifies that form for other programs. The columns of the log are in `contracts.log_schema`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegate.contracts.event_time import ALWAYS, NEVER, NO_STREAM_TIME
from tidegate.contracts.patches import changes, differs, field_types, patched, typed

if TYPE_CHECKING:
    from tidegate.contracts.config.key_rules import AddedWindows


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


class Sink(NamedTuple):
    """What is written to an output topic of a pipeline.

    `step`: the step whose emissions are written. `since`: the batch in which that was configured. `windows`: how
    windows are added to the records. `partitions`: of the topic, if keys decide in which of them records are.
    """

    step: str
    since: int
    windows: AddedWindows | None
    partitions: int | None = None

    @classmethod
    def from_raw(cls, raw: Sequence[Any]) -> Sink:
        """Return what metadata holds for a topic."""
        return cls(*raw)


class Outcome(StrEnum):
    """What a person has decided about output of which Kafka can no longer tell whether it was published."""

    PUBLISHED = "published"
    UNPUBLISHED = "unpublished"


class Settled(NamedTuple):
    """The decision about a partition's newest output, which is of this batch."""

    batch: int
    outcome: Outcome

    @classmethod
    def from_raw(cls, raw: Sequence[Any]) -> Settled:
        """Return the decision that metadata holds."""
        batch, outcome = raw
        return cls(batch, Outcome(outcome))


Raised = tuple[tuple[int, int], ...]
"""Pairs (from, by), ascending: records at offsets from `from` on in the log are `by` lower in the input."""


class Reading(NamedTuple):
    """How far an input topic is read in a partition.

    `leader_epoch`: of the record batch before the next offset; -1: not known. `reached`: where there are several input
    topics, the largest timestamp that was read of this one, ms: by these times their records are merged.
    """

    next_offset: int
    leader_epoch: int = -1
    reached: int = NO_STREAM_TIME

    @classmethod
    def from_raw(cls, raw: Sequence[Any]) -> Reading:
        """Return what metadata holds for a further topic."""
        return cls(*raw)


Ends = Mapping[str, Mapping[int, int]]
"""An offset of each partition of each input topic."""


def consumer_lag(stable_offset: int, next_offset: int) -> int:
    """Return how many offsets below the last stable offset the operator has not read yet.

    It is 0 if the partition now ends before the operator's next offset, for instance because its records were lost.
    """
    return max(0, stable_offset - next_offset)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionMeta:
    """What is known of one partition after a batch: how far its input is read, its state, and its output.

    Batches, clocks, and offsets are -1 where there was none yet. Clocks are wall-clock times of batches, ms.
    """

    next_offset: int  # of the input, or of the first of its topics: where the next batch begins
    query_offset: int = -1  # if the input is a streaming DataFrame: where the next Spark micro-batch begins
    raised: Raised = ()  # where the input used offsets again
    leader_epoch: int = -1  # of the record batch before the next offset
    reached: int = NO_STREAM_TIME  # the largest timestamp read of the first topic, if there are several, ms
    further: dict[str, Reading] = field(default_factory=dict)  # how far the other input topics are read
    stream_time: int = NO_STREAM_TIME  # ms
    last: tuple[int, str] | None = None  # (batch, attempt) of the newest commit that changed the state
    totals: Counts = Counts()  # of all batches; what is held is held now
    measured: dict[str, int] = field(default_factory=dict)  # the measures of all batches, aggregated
    snapshot_batch: int = -1  # the batch up to which the state was rewritten as a whole
    output_batch: int = -1  # the newest batch with output to publish
    active_clock: int = -1  # of the newest batch with records, from which idleness is measured
    advanced_clock: int = -1  # of the newest idle advance
    remembered_from: int | None = None  # event time before which closed windows are forgotten, ms
    floor: int | None = None  # of a table: first event time with all versions kept, ms
    # of a reader, by table: earliest event time that it may still look up, ms
    needs: Mapping[str, int] = field(default_factory=dict)
    # of a pipeline, by table: stream time of the step that reads it, ms
    reader_time: Mapping[str, int] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Return whether a batch has changed the partition's state yet."""
        return self.last is not None

    @property
    def position(self) -> int:
        """Return the next offset, of several input topics the sum of theirs: so records of all are numbered in turn."""
        return self.next_offset + sum(reading.next_offset for reading in self.further.values())

    @property
    def complete_from(self) -> int:
        """Return the first event time with all versions kept; NEVER if none has been dropped yet."""
        return NEVER if self.floor is None else self.floor


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionChange:
    """What one batch did in a partition.

    `opened`: it left a transaction to be committed in Kafka. `recovered`: how the local state was recovered, if it did
    not simply continue. `gates`: of a reader, by table the event time up to which that was complete, ms. `ledger`: of
    a pipeline, what became of the rows at each step.
    """

    counts: Counts
    measures: dict[str, int] = field(default_factory=dict)
    opened: bool = False
    recovered: str | None = None
    gates: Mapping[str, int] = field(default_factory=dict)
    ledger: dict[str, Counts] = field(default_factory=dict)

    def open_until(self, table: str) -> int:
        """Return the event time up to which the batch might release records that read the table; ALWAYS if any."""
        return self.gates.get(table, ALWAYS)


OF_THE_BATCH = {"of": "the batch"}
"""Marks a field that describes its own batch alone. Other fields keep the value of the batch before unless changed."""


@dataclass(frozen=True, kw_only=True)
class BatchMeta:
    """Everything that is known after a batch: of each partition, of the batch itself, and of the operator.

    `partitions` has all partitions of the input, `changed` those whose state the batch changed. A log entry holds
    either all of this or what the batch changed of it, as the maps that DOCUMENT names.
    """

    format: int
    operator: str
    table_id: str
    epoch: int
    batch: int
    attempt: str
    action: str  # claim, apply, batch, idle, flush, compaction, skip, settle, rescale
    clock: int
    config: str
    input: str = ""  # the input's name in the log
    partitions: dict[int, PartitionMeta] = field(default_factory=dict)
    changed: dict[int, PartitionChange] = field(default_factory=dict, metadata=OF_THE_BATCH)
    query_id: str | None = None  # if the input is a streaming DataFrame: id of the Spark query
    query_batch: int = -1  # the newest Spark micro-batch that is completely in the log
    topics: dict[str, str] = field(default_factory=dict)
    compacted: int = 0  # the batch of the newest compaction
    figures: dict[str, int] = field(default_factory=dict)  # totals; see runtime.telemetry.batch_metrics
    skips: tuple[tuple[int | str, ...], ...] = ()  # newest `skipped`: batch, clock, partition, from, to, further topic
    recorded: int = -1  # the batch up to which metadata is in `meta` rows
    inputs: dict[str, Pin] = field(default_factory=dict)  # per table that was read: the version read
    published_from: int = 0  # the batch in which `output` was configured
    sinks: dict[str, Sink] = field(default_factory=dict)  # of a pipeline: by topic what is written there
    dead_letters: str | None = None  # topic of late and rejected records
    dead_letters_from: int = 0  # the batch in which that topic was configured
    # offsets [from, to) that were lost before they were read:
    skipped: dict[int, tuple[int, int]] = field(default_factory=dict, metadata=OF_THE_BATCH)
    settled: dict[int, Settled] = field(default_factory=dict, metadata=OF_THE_BATCH)  # action `settle`
    settings: dict[str, Any] = field(default_factory=dict)  # the configuration, as a file would have it
    applied: str = ""  # hash of the configuration that was applied to the held state
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)  # of a table: epoch and clock of each lease

    @property
    def next_offsets(self) -> dict[int, int]:
        """Return the next offset of each partition of the input, or of the first of its topics."""
        return {partition: known.next_offset for partition, known in self.partitions.items()}

    def readings(self, topic: str) -> dict[int, Reading]:
        """Return how far an input topic is read in each partition; empty if it is none of them."""
        if topic == self.input:
            return {p: Reading(at.next_offset, at.leader_epoch, at.reached) for p, at in self.partitions.items()}
        return {p: at.further[topic] for p, at in self.partitions.items() if topic in at.further}

    @property
    def input_topics(self) -> list[str]:
        """Return the input topics, the first one first."""
        return [self.input, *dict.fromkeys(topic for known in self.partitions.values() for topic in known.further)]

    @property
    def read_to(self) -> dict[str, dict[int, int]]:
        """Return the next offset of each partition of each input topic."""
        found = {topic: self.readings(topic) for topic in self.input_topics}
        return {topic: {p: at.next_offset for p, at in readings.items()} for topic, readings in found.items()}

    def unread(self, ends: Ends) -> dict[int, int]:
        """Return how many offsets before these ends are not read yet, per partition: of all input topics together."""
        found = dict.fromkeys(self.partitions, 0)
        for topic, offsets in self.read_to.items():
            for partition, end in ends.get(topic, {}).items():
                found[partition] += consumer_lag(end, offsets[partition])
        return found

    def is_beyond(self, ends: Ends) -> bool:
        """Return whether more was read than there is up to these ends."""
        return any(own[p] > end for topic, own in self.read_to.items() for p, end in ends[topic].items())

    def to_json(self) -> str:
        """Return all metadata as one line of JSON; inverse of `from_json`."""
        document = _document_of(self, self.partitions)
        return _one_line({name: said for name, said in document.items() if said or name not in _WHERE_NEEDED})

    @classmethod
    def from_json(cls, text: str) -> BatchMeta:
        """Return the metadata that `to_json` wrote; unknown fields are ignored."""
        return after_document(None, json.loads(text))

    def changes_to_json(self, before: BatchMeta, base: int) -> str:
        """Return one line of JSON: what identifies the batch, its own fields, and what it changed in all other fields.

        `base`: the batch of the newest complete metadata, where a reader begins.
        """
        moved = [p for p, known in self.partitions.items() if known is not before.partitions.get(p)]
        was, now = (_document_of(meta, _some(meta.partitions, moved)) for meta in (before, self))
        own = {name: now[name] for name in _OWN if now[name]}
        changed = {name: changes(was[name], now[name]) for name in _KEPT if differs(was[name], now[name])}
        return _one_line({"base": base, **{name: now[name] for name in _IDENTITY}, **own, **changed})


Document = dict[str, Any]
"""Metadata as written: complete, or, with `base`, what changed since the batch before.

What is known per partition is written as one map per field, each with the partitions for which it is set.
"""

_SET_BY_FIRST_BATCH = {"stream_time": "stream_time", "last": "last", "totals": "totals", "measured": "measured"}
"""Maps of a document, and the field of PartitionMeta in each: they have all partitions that a batch has changed."""

_SET_ON_DEMAND = {
    "query_offsets": "query_offset",
    "raised": "raised",
    "epochs": "leader_epoch",
    "reached": "reached",
    "further": "further",
    "snapshot": "snapshot_batch",
    "output": "output_batch",
    "active": "active_clock",
    "advanced": "advanced_clock",
    "remembered": "remembered_from",
    "floor": "floor",
    "needs": "needs",
    "reader_time": "reader_time",
}
"""Further maps. They have the partitions in which the field is not at its default."""

_MAPS = _SET_BY_FIRST_BATCH | _SET_ON_DEMAND

_NAMES = (
    "format", "operator", "table_id", "epoch", "batch", "attempt", "action", "clock", "config", "query_id",
    "query_batch", "query_offsets", "topics", "offsets", "raised", "epochs", "stream_time", "last", "counts",
    "totals", "measures", "opened", "snapshot", "output", "active", "advanced", "compacted", "measured",
    "figures", "skips", "recorded", "inputs", "published_from", "sinks", "dead_letters", "dead_letters_from",
    "skipped", "settled", "recovered", "settings", "applied", "remembered", "readers", "floor", "needs", "reader_time",
    "gates", "ledger", "reached", "further",
)  # fmt: skip
"""The fields of a document, in their order."""

_WHERE_NEEDED = {"ledger", "sinks", "reader_time", "reached", "further"}
"""Fields of pipelines and of operators with several input topics, which other operators' documents do not have."""

_OF_CHANGES = {
    "counts": dict[int, Counts],
    "measures": dict[int, dict[str, int]],
    "opened": tuple[int, ...],
    "recovered": dict[int, str],
    "gates": dict[int, Mapping[str, int]],
    "ledger": dict[int, dict[str, Counts]],
}
"""The types of the fields that hold the batch's own changes per partition."""

_BY_TABLE = ("needs", "reader_time", "gates")
"""Maps whose entries have a number for each table that is read. That of the only table is written alone, without it."""

_FIELDS = {each.name: each for each in fields(BatchMeta) if each.name in _NAMES}
_HINTS: dict[str, Any] = {name: field_types(BatchMeta)[name] for name in _FIELDS} | _OF_CHANGES
_HINTS |= {name: dict[int, field_types(PartitionMeta)[of]] for name, of in _MAPS.items()}  # type: ignore[misc]
_HINTS |= {"offsets": dict[str, dict[int, int]]}
_OWN = [name for name in _NAMES if name in _OF_CHANGES or (name in _FIELDS and _FIELDS[name].metadata == OF_THE_BATCH)]
_REQUIRED = [name for name, each in _FIELDS.items() if each.default is each.default_factory is MISSING]
_IDENTITY = [*_REQUIRED, "compacted"]
"""The fields that every document has. They include all fields that are looked up in single entries of the log."""
_KEPT = [name for name in _NAMES if name not in (*_OWN, *_IDENTITY)]
_UNKNOWN = PartitionMeta(next_offset=0)


def is_complete(document: Document) -> bool:
    """Return whether the document is complete without earlier ones."""
    return "base" not in document


def after_document(before: BatchMeta | None, document: Document) -> BatchMeta:
    """Return the metadata that a document describes; `before` is the metadata of the batch before it.

    Raise ValueError if the document has only changes and `before` is None.
    """
    said = {name: typed(_HINTS[name], document[name]) for name in _NAMES if name in document}
    if is_complete(document):
        return _meta_of(said, {})
    if before is None:
        raise ValueError(f"batch {document['batch']} says what it changed, but the metadata before it is not there")
    moved = {partition for name in _MAPS for partition in said.get(name, ())}
    moved |= {partition for offsets in said.get("offsets", {}).values() for partition in offsets}
    was = _document_of(before, _some(before.partitions, moved))
    # rule: metadata-builds-up/kept
    kept = {name: patched(was[name], said.get(name, {})) if name in said else was[name] for name in _KEPT}
    # rule: metadata-builds-up/merged
    return _meta_of(said | kept, before.partitions)


def _document_of(meta: BatchMeta, partitions: Mapping[int, PartitionMeta]) -> Document:
    """Return the metadata, of these partitions alone, in the form and order in which it is written."""
    said = {name: getattr(meta, name) for name in _FIELDS}
    said["offsets"] = {meta.input: {p: known.next_offset for p, known in partitions.items()}} if meta.input else {}
    begun = {partition for partition, known in partitions.items() if known.begun}
    said |= {name: _map_of(partitions, of, begun) for name, of in _SET_BY_FIRST_BATCH.items()}
    said |= {name: _map_of(partitions, of, frozenset()) for name, of in _SET_ON_DEMAND.items()}
    said |= _document_of_changes(meta.changed)
    said |= {name: {p: _as_written(by, meta.inputs) for p, by in said[name].items()} for name in _BY_TABLE}
    return {name: said[name] for name in _NAMES}


def _document_of_changes(changed: Mapping[int, PartitionChange]) -> Document:
    return {
        "counts": {partition: change.counts for partition, change in changed.items()},
        "measures": {partition: change.measures for partition, change in changed.items()},
        "opened": [partition for partition, change in changed.items() if change.opened],
        "recovered": {p: change.recovered for p, change in changed.items() if change.recovered is not None},
        "gates": {p: change.gates for p, change in changed.items() if change.gates},
        "ledger": {p: change.ledger for p, change in changed.items() if change.ledger},
    }


def _map_of(partitions: Mapping[int, PartitionMeta], of: str, begun: Set[int]) -> dict[int, Any]:
    """Return the field `of` of the partitions in `begun`, and of those in which it is not at its default."""
    unset, values = getattr(_UNKNOWN, of), map(attrgetter(of), partitions.values())
    return {p: value for p, value in zip(partitions, values, strict=True) if p in begun or value != unset}


def _some(partitions: Mapping[int, PartitionMeta], wanted: Iterable[int]) -> dict[int, PartitionMeta]:
    return {partition: partitions[partition] for partition in wanted if partition in partitions}


def _meta_of(said: Document, unchanged: Mapping[int, PartitionMeta]) -> BatchMeta:
    """Return the metadata of a document with converted values; `unchanged`: the partitions that it does not have."""
    tables = said.get("inputs", {})
    said |= {name: {p: _by_table(each, tables) for p, each in said.get(name, {}).items()} for name in _BY_TABLE}
    [(source, offsets)] = said.get("offsets", {}).items() or [("", {})]
    return BatchMeta(
        **{name: said[name] for name in _FIELDS if name in said},
        input=source,
        partitions={
            **unchanged,
            **{partition: _partition_of(said, partition, at) for partition, at in offsets.items()},
        },
        changed={
            partition: _change_of(said, partition, counts) for partition, counts in said.get("counts", {}).items()
        },
    )


def _partition_of(said: Document, partition: int, next_offset: int) -> PartitionMeta:
    values = {of: said[name][partition] for name, of in _MAPS.items() if partition in said.get(name, ())}
    return PartitionMeta(next_offset=next_offset, **values)


def _change_of(said: Document, partition: int, counts: Counts) -> PartitionChange:
    return PartitionChange(
        counts=counts,
        measures=said.get("measures", {}).get(partition, {}),
        opened=partition in said.get("opened", ()),
        recovered=said.get("recovered", {}).get(partition),
        gates=said["gates"].get(partition, {}),
        ledger=said.get("ledger", {}).get(partition, {}),
    )


def _as_written(by_table: Mapping[str, int], tables: Mapping[str, Pin]) -> int | Mapping[str, int]:
    """Return the numbers as a document has them, whose `inputs` are these tables."""
    return next(iter(by_table.values())) if len(tables) == 1 and by_table.keys() == tables.keys() else by_table


def _by_table(written: int | Mapping[str, int], tables: Mapping[str, Pin]) -> Mapping[str, int]:
    """Return the numbers by table; nothing for a number alone if no table of another operator is read."""
    return dict.fromkeys(tables, written) if isinstance(written, int) else written


def _one_line(document: Document) -> str:
    return json.dumps(document, default=vars, separators=(",", ":"))
