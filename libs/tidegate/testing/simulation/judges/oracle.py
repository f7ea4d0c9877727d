"""What must be true of a run, whatever went wrong.

The log says what was done in which order: the oracle does the same on an operator of its own, so it knows at once what
each commit has to emit. Whatever becomes visible in Kafka must be the next of that, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.naming import (
    HEADER_BATCH,
    HEADER_CAUSE,
    HEADER_ERROR_MESSAGE,
    HEADER_ERROR_OFFSET,
    HEADER_ERROR_PARTITION,
    HEADER_ERROR_TOPIC,
    HEADER_SEQ,
    HEADER_WINDOW_END,
    HEADER_WINDOW_START,
)
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.contracts.records import Row
from tidegate.contracts.schema import BatchMeta
from tidegate.kernels.record_format.record_batch import decode, decode_headers, encode_headers
from tidegate.operators.registry import operator_for
from tidegate.runtime.publishing.topics import configured
from tidegate.state.decisions import parse_mark
from tidegate.testing.laws import Advance, Flush, Partition
from tidegate.testing.simulation.kafka.broker import Watchers
from tidegate.testing.simulation.kafka.partition_log import Batch
from tidegate.testing.simulation.settings import DEAD_LETTERS, INPUT, OUTPUT


class Violation(BaseException):
    """The run is wrong. Nothing that it passes on its way may take it for an error of its own."""


class Emission(NamedTuple):
    """A record that the operator writes: an emission, or a dead letter."""

    batch: int
    seq: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: bytes
    cause: str
    window: tuple[int, int] | None = None


class Oracle:
    """Follows the log and the output of one run."""

    table: Oracle | None = None

    def __init__(self, config: OperatorConfig, partitions: int) -> None:
        self._config, self.input = config, config.input
        self.slot = operator_for(config).slot
        self._partitions = [self._new_partition() for _ in range(partitions)]
        self.inputs: list[dict[int, Row]] = [{} for _ in range(partitions)]
        outlets = [(topic, p) for topic in configured(config).topics for p in range(partitions)]
        self.expected: dict[tuple[str, int], list[Emission]] = {outlet: [] for outlet in outlets}
        self.visible = dict.fromkeys(outlets, 0)
        self.newest: BatchMeta | None = None
        self.flushed = False
        self._marked = [-1] * partitions
        self._ends: dict[int, int] = {}
        self.lost_from: dict[int, int] = {}
        self._used_twice = [0] * partitions
        self.truncated = False
        self._violation: Violation | None = None
        self.watchers = Watchers(published=self._guarded(self._published), marked=self._guarded(self._mark))
        self.committed = self._guarded(self._committed)

    def check(self) -> None:
        """Nothing was wrong so far; raises Violation again wherever it has been lost."""
        if self._violation is not None:
            raise self._violation

    def offsets(self) -> dict[int, int]:
        """The input offsets that the log has reached."""
        return self.newest.offsets[self.input] if self.newest is not None else {}

    def everything_is_visible(self) -> bool:
        """True when all output of the log can be read, and its marks say so."""
        return all(
            self.visible[outlet] == len(due) and (not due or self._marked[outlet[1]] >= due[-1].batch)
            for outlet, due in self.expected.items()
        )

    def rewritten(self, version: int) -> None:
        """The log has that version of somebody else, which changes no data: nothing is due for it."""

    def truncate(self, partition: int, offset: int) -> None:
        """The input has lost its records from the offset on."""
        self.inputs[partition] = {at: row for at, row in self.inputs[partition].items() if at < offset}
        self._ends[partition] = min(self._ends.get(partition, 0), offset)
        if self.offsets().get(partition, 0) > offset:
            self.lost_from[partition] = min(offset, self.lost_from.get(partition, offset))
            self.truncated = True

    def is_visible(self, partition: int) -> bool:
        """Return True if readers could see all output of the partition."""
        return all(self.visible[topic, p] == len(due) for (topic, p), due in self.expected.items() if p == partition)

    def held(self, partition: int) -> pa.Table:
        """What the partition holds, as rows of the changelog."""
        return self._partitions[partition].state.snapshot()

    def recovered(self, partition: int, last: tuple[int, str] | None, state: OperatorState) -> None:
        """A task has its state, which is that of the commit; if that is the newest, it is what the oracle has."""
        if self.newest is None or self.newest.last.get(partition) != last:
            return
        found, due = state.snapshot(), self.held(partition)
        if sorted_rows(found, due.column_names) != sorted_rows(due, due.column_names):
            self._violation = Violation(
                f"state of {partition} after {last}: {found.to_pylist()}, must be {due.to_pylist()}"
            )
            raise self._violation

    def waits(self) -> bool:
        """True while something that is due is held."""
        return False

    def came_and_was_due(self, partition: int) -> tuple[list[Any], list[Any]]:
        """What was emitted, and what one batch over the whole input emits."""
        calm = self._new_partition()
        result = calm.play([row for _, row in sorted(self.inputs[partition].items())])
        came = [emission[2:] for emission in self.expected[OUTPUT, partition]]
        return came, [emission[2:] for emission in _emissions(-1, result)]

    def _new_partition(self) -> Partition:
        return Partition(operator_for(self._config), 0)

    def _guarded(self, watch):  # type: ignore[no-untyped-def]
        def guarded(*facts: object) -> None:
            try:
                watch(*facts)
            except Violation as violation:
                self._violation = self._violation or violation
                raise

        return guarded

    # ---- the log

    def _committed(self, meta: BatchMeta, ends: dict[int, int], version: int) -> None:
        """Check the batch; `ends` are those of the input partitions, open transactions included."""
        before = self.newest
        if before is not None and (meta.batch <= before.batch or meta.epoch < before.epoch):
            raise Violation(f"batch {meta.batch} of epoch {meta.epoch} after {before.batch} of {before.epoch}")
        if before is not None and meta.action == "claim" and meta.epoch == before.epoch:
            raise Violation(f"two claims of epoch {meta.epoch}")
        for partition, counts in meta.counts.items():
            result = self._play(partition, before, meta)
            if (result.counts, result.stream_time) != (counts, meta.stream_time[partition]):
                raise Violation(f"batch {meta.batch}, partition {partition}: {counts}, must be {result.counts}")
            self._note(partition, result)
            self._expect(OUTPUT, partition, _emissions(meta.batch, result))
            letters = _dead_letters(meta.batch, partition, result, self._used_twice[partition])
            self._expect(DEAD_LETTERS, partition, letters)
        for partition, (reached, end) in meta.skipped.items() if meta.action == "skip" else ():
            if self.lost_from.pop(partition, None) != end:
                raise Violation(f"partition {partition} goes back to {end}")
            self._used_twice[partition] += reached - end
        self.flushed |= meta.action == "flush"
        self.newest, self._ends = meta, ends

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        """The twin knows what the batch knew beside its records."""

    def _note(self, partition: int, result: StepResult) -> None:
        """What the batch did may be needed at the end."""

    def _expect(self, topic: str, partition: int, written: list[Emission]) -> None:
        """It is written, if the operator has the topic."""
        if (topic, partition) in self.expected:
            self.expected[topic, partition] += written

    def _play(self, partition: int, before: BatchMeta | None, meta: BatchMeta) -> StepResult:
        """What the batch does to the partition."""
        if before is None:
            raise Violation("a batch before any claim")
        twin = self._partitions[partition]
        twin.clock_ms = meta.clock
        self._prepare(twin, partition, before, meta)
        start, end = before.offsets[self.input][partition], meta.offsets[self.input][partition]
        if start != end and partition in self.lost_from:
            raise Violation(f"partition {partition} goes on at {start}; {self.lost_from[partition]} on was lost")
        if start != end:
            found = [row for offset, row in sorted(self.inputs[partition].items()) if start <= offset < end]
            return twin.play([row._replace(offset=row.offset + self._used_twice[partition]) for row in found])
        if meta.action == "flush":
            return twin.play(Flush())
        growth = meta.stream_time[partition] - max(0, twin.state.stream_time)
        if growth > 0 and (unread := self._ends[partition] - end) > 0:  # there before the batch was planned
            raise Violation(f"an idle advance of partition {partition} at {end}, before {unread} offsets are read")
        return twin.play(Advance(growth))

    # ---- the output

    def _published(self, topic: str, partition: int, batches: Sequence[Batch]) -> None:
        for batch in batches:
            for row in decode(batch.data, batch.base, batch.last + 1, []).records.rows():
                self._show((topic, partition), _emission(row))

    def _show(self, outlet: tuple[str, int], emission: Emission) -> None:
        seen, due = self.visible[outlet], self.expected[outlet]
        if seen >= len(due) or due[seen] != emission:
            next_one = due[seen] if seen < len(due) else "nothing"
            raise Violation(f"partition {outlet[1]} of {outlet[0]} shows {emission}, due is {next_one}")
        self.visible[outlet] += 1

    def _mark(self, partition: int, metadata: str) -> None:
        mark = parse_mark(metadata)
        newest = -1 if self.newest is None else self.newest.batch
        if mark is None or not self._marked[partition] <= mark.batch <= newest:
            raise Violation(f"mark {metadata!r} after {self._marked[partition]}; the log is at {newest}")
        self._marked[partition] = mark.batch


def _emissions(batch: int, result: StepResult) -> list[Emission]:
    emissions = []
    for seq, row in enumerate(result.emissions.to_pylist()):
        window = (row["window_start"], row["window_end"]) if "window_start" in row else None
        record = row["key"], row["value"], row["timestamp"], row.get("headers") or b"", row["cause"]
        emissions.append(Emission(batch, seq, *record, window))
    return emissions


def _dead_letters(batch: int, partition: int, result: StepResult, used_twice: int) -> list[Emission]:
    """What is refused of a batch; `used_twice`: by how much its offsets are larger than those of the input."""
    refused = [("late", row) for row in result.late.to_pylist()]
    refused += [("rejected", row) for row in result.rejected.to_pylist()]
    letters = []
    for seq, (kind, row) in enumerate(sorted(refused, key=lambda one: int(one[1]["offset"]))):
        origin = [
            (HEADER_ERROR_TOPIC, INPUT),
            (HEADER_ERROR_PARTITION, str(partition)),
            (HEADER_ERROR_OFFSET, str(row["offset"] - used_twice)),
            (HEADER_ERROR_MESSAGE, f"{kind}: {row['cause']}"),
        ]
        added = [(name.encode(), value.encode()) for name, value in origin]
        headers = encode_headers([*decode_headers(row["headers"] or b""), *added])
        letters.append(Emission(batch, seq, row["key"], row["value"], row["timestamp"], headers, row["cause"]))
    return letters


def _emission(row: Row) -> Emission:
    headers = decode_headers(row.headers)
    own = {name.decode(): (value or b"").decode() for name, value in headers if name.startswith(b"tidegate-")}
    others = encode_headers([header for header in headers if not header[0].startswith(b"tidegate-")])
    stamp = int(own[HEADER_BATCH]), int(own[HEADER_SEQ])
    bounds = (int(own[HEADER_WINDOW_START]), int(own[HEADER_WINDOW_END])) if HEADER_WINDOW_START in own else None
    return Emission(*stamp, row.key, row.value, row.timestamp, others, own[HEADER_CAUSE], bounds)


def sorted_rows(rows: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    """Those columns of a changelog's slots, in an order that says nothing of theirs."""
    listed = [
        tuple(row[column] or b"" if column == "headers" else row[column] for column in columns)
        for row in rows.to_pylist()
    ]
    return sorted(listed, key=repr)
