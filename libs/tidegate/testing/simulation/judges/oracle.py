"""The oracle of a run, which checks its invariants whatever faults occur.

The log gives the order of all work. The oracle repeats that work on an operator of its own, so it knows at once what
each commit must emit. Whatever becomes visible in Kafka must be the next record of that output, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.operator_config import OperatorConfig, Output
from tidegate.contracts.flow import NO_SOURCE
from tidegate.contracts.naming import (
    HEADER_BATCH,
    HEADER_CAUSE,
    HEADER_ERROR_MESSAGE,
    HEADER_ERROR_OFFSET,
    HEADER_ERROR_PARTITION,
    HEADER_ERROR_TOPIC,
    HEADER_PARTITION,
    HEADER_SEQ,
    HEADER_WINDOW_END,
    HEADER_WINDOW_START,
)
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.kernels.record_format.record_batch import decode, decode_headers, encode_headers
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Advance, Change, Flush, Partition, Step
from tidegate.runtime.configuration.application import config_of
from tidegate.runtime.publishing.topics import configured
from tidegate.state.protocol_decisions import Wanted, parse_mark
from tidegate.testing.simulation.kafka.broker import Watchers
from tidegate.testing.simulation.kafka.partition_log import Batch

Facts = ParamSpec("Facts")


Origins = Callable[[int], tuple[str, int]]
"""A function that says in which topic, and at which offset there, a record was read."""


class Violation(BaseException):
    """An invariant of the run is violated. A BaseException, so that no error handler on its way catches it."""


class Emission(NamedTuple):
    """A record that the operator writes: an emission or a dead letter."""

    batch: int
    seq: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: bytes
    cause: str
    window: tuple[int, int] | None = None


class Outlet(NamedTuple):
    """A partition of an output topic, and the partition of the input whose output it is.

    What one partition of the input has for it comes in one order; that of several may come in any.
    """

    topic: str
    partition: int
    source: int


class Oracle:
    """The oracle of one operator's log and output."""

    tables: Mapping[str, Oracle] = MappingProxyType({})
    further_topics: tuple[str, ...] = ()
    """Topics that the operator may write beside those of its first configuration."""

    def __init__(self, config: OperatorConfig, partitions: int) -> None:
        self._config, self.input, self._outputs = config, config.input, config.outputs()
        self.slot = operator_for(config).slot
        self._partitions = [self._new_partition() for _ in range(partitions)]
        self.inputs_by_topic: dict[str, list[dict[int, Row]]] = {
            topic: [{} for _ in range(partitions)] for topic in config.inputs
        }
        self.inputs = self.inputs_by_topic[self.input]
        by_key = configured(config).partitions
        outlets = [
            Outlet(topic, place, source)
            for topic in dict.fromkeys((*configured(config).topics, *self.further_topics))
            for source in range(partitions)
            for place in (range(by_key[topic]) if topic in by_key else [source])
        ]
        self.expected: dict[Outlet, list[Emission]] = {outlet: [] for outlet in outlets}
        self.visible = dict.fromkeys(outlets, 0)
        self.newest: BatchMeta | None = None
        self.made: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.flushed = False
        self.events: Counter[str] = Counter()
        self._marked = [-1] * partitions
        self._ends: dict[int, int] = {}
        self.lost_from: dict[int, int] = {}
        self._reused_offsets = [0] * partitions
        self.truncated = False
        self._violation: Violation | None = None
        self.watchers = Watchers(published=self._guarded(self._published), marked=self._guarded(self._mark))
        self.committed = self._guarded(self._committed)

    def check(self) -> None:
        """Raise the Violation that was found, if any, even if it was raised and lost before."""
        if self._violation is not None:
            raise self._violation

    def offsets(self) -> dict[int, int]:
        """Return the input offsets that the log has reached."""
        return self.newest.next_offsets if self.newest is not None else {}

    def read_to(self) -> dict[str, dict[int, int]]:
        """Return the offsets that the log has reached in each input topic."""
        return self.newest.read_to if self.newest is not None else {self.input: {}}

    def everything_is_visible(self) -> bool:
        """Return True if all output of the log can be read and the committed offsets of its group confirm it."""
        return all(
            self.visible[outlet] == len(due) and (not due or self._marked[outlet.source] >= due[-1].batch)
            for outlet, due in self.expected.items()
        )

    def places(self) -> list[tuple[str, int]]:
        """Return the partitions of the topics that the operator writes."""
        return sorted({(outlet.topic, outlet.partition) for outlet in self.expected})

    def due_in(self, topic: str, partition: int) -> int:
        """Return how many records there must be in that partition."""
        return sum(len(due) for outlet, due in self.expected.items() if outlet[:2] == (topic, partition))

    def note_foreign_version(self, version: int) -> None:
        """Do nothing: another program wrote that version of the log, without changing data."""

    def truncate(self, partition: int, offset: int) -> None:
        """Note that the input has lost its records from the offset on."""
        self.inputs[partition] = {at: row for at, row in self.inputs[partition].items() if at < offset}
        self._ends[partition] = min(self._ends.get(partition, 0), offset)
        if self.offsets().get(partition, 0) > offset:
            self.lost_from[partition] = min(offset, self.lost_from.get(partition, offset))
            self.truncated = True

    def is_visible(self, partition: int) -> bool:
        """Return True if readers can see all output of the partition."""
        return all(
            self.visible[outlet] == len(due) for outlet, due in self.expected.items() if outlet.source == partition
        )

    def held(self, partition: int) -> pa.Table:
        """Return what the partition holds, as changelog rows."""
        return self._partitions[partition].state.snapshot()

    def in_log(self, partition: int) -> pa.Table:
        """Return what the log has of the partition's state."""
        return self.held(partition)

    def recovered(self, partition: int, wanted: Wanted, state: OperatorState) -> None:
        """Check a recovered state against the oracle's, if it is the state of the newest commit.

        `wanted` identifies the commit whose state was recovered. Raise Violation if the states differ.
        """
        if self.newest is None or self.newest.partitions[partition].last != wanted.last:
            return
        found, due = state.snapshot(), self.held(partition)
        if sorted_rows(found, due.column_names) != sorted_rows(due, due.column_names):
            self._violation = Violation(
                f"state of {partition} after {wanted.last}: {found.to_pylist()}, must be {due.to_pylist()}"
            )
            raise self._violation

    def is_waiting_for_table(self) -> bool:
        """Return True while records are held only because a table is behind; always False without a table."""
        return False

    def is_predicted(self) -> bool:
        """Return True if the input alone determines the output: no clock, no flush and no truncation took part.

        Of two topics, none waits for one that has no more.
        """
        by_clock = self._config.idle_after is not None or len(self._config.inputs) > 1
        return not (by_clock or self.flushed or self.truncated)

    def actual_and_expected(self, partition: int) -> tuple[list[Any], list[Any]]:
        """Return what was emitted, and what a single batch over the whole input would emit."""
        calm = self._calm(partition)
        result = calm.play([row for _, row in sorted(self.inputs[partition].items())])
        whole = [(output, _emissions(-1, result, output.step)) for output in self._outputs]
        both = [
            (self.expected[outlet], emissions)
            for output, written in whole
            for outlet, emissions in _placed(output, partition, written).items()
        ]
        came, due = ([emission[2:] for each in side for emission in each] for side in zip(*both, strict=True))
        return came, due

    def _calm(self, partition: int) -> Partition:
        """Return a partition on which the whole input is played in one batch."""
        return self._new_partition()

    def _new_partition(self) -> Partition:
        return Partition(operator_for(self._config), 0)

    def _guarded(self, watch: Callable[Facts, None]) -> Callable[Facts, None]:
        def guarded(*facts: Facts.args, **named: Facts.kwargs) -> None:
            try:
                watch(*facts, **named)
            except Violation as violation:
                self._violation = self._violation or violation
                raise

        return guarded

    # ---- the log

    def _committed(self, meta: BatchMeta, ends: dict[int, int], version: int) -> None:
        """Check the batch. `ends` are the ends of the input partitions, open transactions included."""
        before = self.newest
        if before is not None and (meta.batch <= before.batch or meta.epoch < before.epoch):
            raise Violation(f"batch {meta.batch} of epoch {meta.epoch} after {before.batch} of {before.epoch}")
        if before is not None and meta.action == "claim" and meta.epoch == before.epoch:
            raise Violation(f"two claims of epoch {meta.epoch}")
        if meta.action == "claim" and meta.settings:
            self._follow(config_of(meta.settings))
        for partition, change in meta.changed.items():
            step = self._step(partition, before, meta)
            result = self._partitions[partition].play(step)
            if (result.counts, result.stream_time) != (change.counts, meta.partitions[partition].stream_time):
                raise Violation(f"batch {meta.batch}, partition {partition}: {change.counts}, must be {result.counts}")
            self._note(partition, step, result)
            self._expect(meta.batch, partition, result)
        for partition, (reached, end) in meta.skipped.items() if meta.action == "skip" else ():
            if self.lost_from.pop(partition, None) != end:
                raise Violation(f"partition {partition} goes back to {end}")
            self._reused_offsets[partition] += reached - end
        self.flushed |= meta.action == "flush"
        self.newest, self._ends = meta, ends

    def _origins(self, partition: int) -> Origins:
        """Return where the records of the batch that was just played were read, by the oracle's offsets."""
        # truncation reuses offsets: those of the oracle are larger
        return lambda offset: (self.input, offset - self._reused_offsets[partition])

    def _follow(self, config: OperatorConfig) -> None:
        """Go on under the configuration of a claim. Raise Violation if it is another one than the claims before had."""
        if config != self._config:
            raise Violation(f"a claim with another configuration: {config}")

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        """Give the twin what the batch knew besides its records."""

    def _note(self, partition: int, step: Step, result: StepResult) -> None:
        """Keep what the comparison at the end needs of a batch."""

    def _step(self, partition: int, before: BatchMeta | None, meta: BatchMeta) -> Step:
        """Return what the batch does, for the oracle's own partition."""
        if before is None:
            raise Violation("a batch before any claim")
        twin = self._partitions[partition]
        twin.clock_ms = meta.clock
        self._prepare(twin, partition, before, meta)
        start, end = (known.partitions[partition].position for known in (before, meta))
        if start != end and partition in self.lost_from:
            raise Violation(f"partition {partition} goes on at {start}; {self.lost_from[partition]} on was lost")
        if start != end:
            found = self._read(partition, before, meta)
            return [row._replace(offset=row.offset + self._reused_offsets[partition]) for row in found]
        if meta.action == "flush":
            return Flush()
        if meta.action == "apply":
            return Change(self._config)
        growth = meta.partitions[partition].stream_time - max(0, twin.state.stream_time)
        if growth > 0 and (unread := self._ends[partition] - end) > 0:  # they were there before the batch was planned
            raise Violation(f"an idle advance of partition {partition} at {end}, before {unread} offsets are read")
        return Advance(growth)

    def _read(self, partition: int, before: BatchMeta, meta: BatchMeta) -> list[Row]:
        """Return the records that the batch has read, in the order in which they are processed."""
        start, end = (known.partitions[partition].next_offset for known in (before, meta))
        return [row for offset, row in sorted(self.inputs[partition].items()) if start <= offset < end]

    # ---- the output

    def _expect(self, batch: int, partition: int, result: StepResult) -> None:
        """Add what a batch made in a partition to the expected output."""
        self.made[partition] += [(batch, seq) for seq in range(result.emissions.num_rows)]
        for output in self._outputs:
            for outlet, written in _placed(output, partition, _emissions(batch, result, output.step)).items():
                self.expected[outlet] += written
        if (topic := self._config.dead_letters) is not None:
            read, nowhere = self._origins(partition), (self.input, NO_SOURCE)
            letters = _dead_letters(batch, partition, result, lambda at: nowhere if at == NO_SOURCE else read(at))
            self.expected[Outlet(topic, partition, partition)] += letters

    def _published(self, topic: str, partition: int, batches: Sequence[Batch]) -> None:
        for batch in batches:
            for row in decode(batch.data, batch.base, batch.last + 1, []).records.rows():
                self._show(Outlet(topic, partition, _source(row, partition)), _emission(row))

    def _show(self, outlet: Outlet, emission: Emission) -> None:
        visible, expected = self.visible[outlet], self.expected[outlet]
        if visible >= len(expected) or expected[visible] != emission:
            next_one = expected[visible] if visible < len(expected) else "nothing"
            raise Violation(f"{outlet} shows {emission}, due is {next_one}")
        self.visible[outlet] += 1

    def _mark(self, partition: int, metadata: str) -> None:
        mark = parse_mark(metadata)
        newest = -1 if self.newest is None else self.newest.batch
        if mark is None or not self._marked[partition] <= mark.batch <= newest:
            raise Violation(f"mark {metadata!r} after {self._marked[partition]}; the log is at {newest}")
        self._marked[partition] = mark.batch


def _emissions(batch: int, result: StepResult, step: str | None) -> list[Emission]:
    """Return the emissions of a batch, of a pipeline those of one step."""
    emissions = []
    for seq, row in enumerate(result.emissions.to_pylist()):
        if step is not None and row["step"] != step:
            continue
        window = (row["window_start"], row["window_end"]) if row.get("window_start") is not None else None
        record = row["key"], row["value"], row["timestamp"], row.get("headers") or b"", row["cause"]
        emissions.append(Emission(batch, seq, *record, window))
    return emissions


def _dead_letters(batch: int, partition: int, result: StepResult, origins: Origins) -> list[Emission]:
    """Return the late and rejected records of a batch as dead letters, by topic and offset."""
    refused = [("late", row) for row in result.late.to_pylist()]
    refused += [("rejected", row) for row in result.rejected.to_pylist()]
    letters = []
    placed = sorted(((origins(_origin_of(row)), kind, row) for kind, row in refused), key=lambda one: one[0])
    for seq, ((topic, offset), kind, row) in enumerate(placed):
        of_step = f"step {row['step']}: " if row.get("topic") else ""
        origin = [
            (HEADER_ERROR_TOPIC, topic),
            (HEADER_ERROR_PARTITION, str(partition)),
            (HEADER_ERROR_OFFSET, str(offset)),
            (HEADER_ERROR_MESSAGE, f"{kind}: {of_step}{row['cause']}"),
        ]
        added = [(name.encode(), value.encode()) for name, value in origin]
        headers = encode_headers([*decode_headers(row["headers"] or b""), *added])
        letters.append(Emission(batch, seq, row["key"], row["value"], row["timestamp"], headers, row["cause"]))
    return letters


def _origin_of(row: dict[str, Any]) -> int:
    """Return the offset of the record that a dead letter names: of a row within a pipeline, the one that caused it."""
    return int(row["source"] if row.get("topic") else row["offset"])


def _placed(output: Output, source: int, written: list[Emission]) -> dict[Outlet, list[Emission]]:
    """Return by outlet what one partition of the input has for the output; nothing is an empty list.

    Of a record without a key the partition is that of its input modulo their number.
    """
    if output.partitions is None:
        return {Outlet(output.topic, source, source): written}
    found: dict[Outlet, list[Emission]] = {
        Outlet(output.topic, place, source): [] for place in range(output.partitions)
    }
    keys = pa.chunked_array([pa.array([emission.key for emission in written], pa.binary())])
    for emission, place in zip(written, partitions_of(keys, output.partitions).tolist(), strict=True):
        own = source % output.partitions if place < 0 else place
        found[Outlet(output.topic, own, source)].append(emission)
    return found


def _source(row: Row, partition: int) -> int:
    """Return the partition of the input of which a record says that it was made; default: that of the output."""
    headers = dict(decode_headers(row.headers))
    return int(headers.get(HEADER_PARTITION.encode()) or partition)


def _emission(row: Row) -> Emission:
    headers = decode_headers(row.headers)
    own = {name.decode(): (value or b"").decode() for name, value in headers if name.startswith(b"tidegate-")}
    others = encode_headers([header for header in headers if not header[0].startswith(b"tidegate-")])
    stamp = int(own[HEADER_BATCH]), int(own[HEADER_SEQ])
    bounds = (int(own[HEADER_WINDOW_START]), int(own[HEADER_WINDOW_END])) if HEADER_WINDOW_START in own else None
    return Emission(*stamp, row.key, row.value, row.timestamp, others, own[HEADER_CAUSE], bounds)


def sorted_rows(rows: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """Return those columns of changelog rows, sorted so that the order of the rows does not matter."""
    listed = [
        tuple(row[column] or b"" if column == "headers" else row[column] for column in columns)
        for row in rows.to_pylist()
    ]
    return sorted(listed, key=repr)
