"""What flows between the steps of a pipeline: rows and time marks, in one exact sequence.

A time mark says how far time has come, without a record. A step's stream time (T) is the largest of the timestamps that
it accepted and of the marks that it received. After each row that moved T, a step's results come first, then a mark
T - hold. The hold is how far behind T the step's later results may be: a step that keeps records for 30 s holds 30 s.

Marks are exact: one for each row, or mark, that moved T. With one mark per batch, the output of a chain would depend on
how its input was cut into batches. On its way to a later T, time passes all times between: before a result that time
alone releases stands a mark, too. So two marks behind each other mean what the second means alone, and what a join
releases together, because it waited for its table, leaves as if it had not waited.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIMESTAMP, NO_STREAM_TIME
from tidegate.contracts.records import Int64s, Records

NO_SOURCE = -1
"""The source of what no record caused: an idle advance, a flush, or a table that came further."""


class Marks(NamedTuple):
    """Time marks among a batch's results.

    A mark stands before result `at[i]`, has the time `time[i]`, and was caused by row `row[i]` of the batch.
    """

    at: Int64s
    time: Int64s
    row: Int64s

    @classmethod
    def none(cls) -> Marks:
        """Return no marks."""
        return cls(*(np.empty(0, np.int64) for _ in cls._fields))

    def merged(self, others: Marks) -> Marks:
        """Return these marks and the others, which come second where they stand before the same result.

        A mark that is not larger than one before it says nothing, and is left out.
        """
        at, time, row = (np.concatenate(pair) for pair in zip(self, others, strict=True))
        order = np.argsort(at, kind="stable")
        larger = np.diff(np.maximum.accumulate(time[order]), prepend=NO_STREAM_TIME) > 0
        return Marks(*(column[order[larger]] for column in (at, time, row)))


class Passage(NamedTuple):
    """How a batch moved a step's stream time, and when its results left.

    `before`, `after`: T before and after the batch. `timestamp`: per row that was read its event timestamp. `ignored`:
    the rows that did not move T whatever their timestamp, such as rejected ones. `emitted_after`: per result the row
    after which it left. `oldest`: per row the timestamp of the oldest record held after it, for a step whose marks must
    not pass that; None for others. Without rows, `oldest` has one entry: after the batch. `reached`: per result the
    stream time that time reached, if it came as far, before that result left; None if time alone releases none.
    """

    before: int
    after: int
    timestamp: Int64s
    ignored: Int64s
    emitted_after: Int64s
    oldest: Int64s | None = None
    reached: Int64s | None = None

    def stream_times(self) -> Int64s:
        """Return T after each row; without rows one entry, T after the batch."""
        if not len(self.timestamp):
            return np.array([self.after], np.int64)
        moves = self.timestamp.copy()
        moves[self.ignored] = NO_STREAM_TIME
        moves[0] = max(int(moves[0]), self.before)
        return np.maximum.accumulate(moves)

    def marks(self, hold: int | None) -> Marks:
        """Return the marks that follow the batch's results, with T - `hold`. None: the step passes no time on.

        The first mark of a batch may repeat the last one of the batch before, which changes nothing where it arrives.
        """
        if hold is None:
            return Marks.none()
        # rule: mark-behind-by-hold
        passed = self.stream_times() - hold
        # rule: mark-not-past-held
        if self.oldest is not None:
            passed = np.minimum(passed, self.oldest)
        passed = np.maximum.accumulate(passed)
        # rule: mark-per-moved-time
        moved = np.flatnonzero(np.diff(passed, prepend=NO_STREAM_TIME) > 0)
        # rule: outputs-before-mark
        at = np.searchsorted(self._emitted_after(), moved, side="right")
        behind_rows = Marks(at.astype(np.int64), passed[moved], moved)
        # rule: mark-before-released
        return behind_rows if self.reached is None else behind_rows.merged(self._before_results(hold, passed))

    def _before_results(self, hold: int, passed: Int64s) -> Marks:
        """Return the marks before results that time alone released. `passed`: per row the mark that follows it."""
        assert self.reached is not None
        rows = self._emitted_after()
        at = np.flatnonzero(self.reached <= self.stream_times()[rows])
        return Marks(at, np.minimum(self.reached[at] - hold, passed[rows[at]]), rows[at])

    def _emitted_after(self) -> Int64s:
        return self.emitted_after if len(self.timestamp) else np.zeros(len(self.emitted_after), np.int64)


def later(times: Int64s, by: int) -> Int64s:
    """Return the times plus `by`; what lies beyond MAX_TIMESTAMP, as the end of a window that never ends, is that."""
    return np.minimum(times, MAX_TIMESTAMP - by) + by


@dataclass(frozen=True, kw_only=True, eq=False)
class Flow:
    """Rows and time marks between two steps, in one sequence.

    A mark is a row of `rows` that only passes its time on (`rows.time_only`), and so is a row that a filter dropped.
    `rows.offset` is the arrival number of a row at the step that receives it; before the first step that holds state it
    is Kafka's offset. `source`: the offset of the input record that caused each row. `columns`: the rows' typed values,
    if a step has made some; a mark has nulls. `port`: the input that each row is for, of a step with several.
    """

    rows: Records
    source: Int64s
    columns: pa.RecordBatch | None = None
    port: npt.NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_input(cls, rows: Records) -> Flow:
        """Return the records of the input as a flow: each is its own source."""
        return cls(rows=rows, source=rows.offset, port=rows.port)

    @property
    def is_record(self) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is a record, not a mark or a dropped row."""
        return np.ones(len(self), np.bool_) if self.rows.time_only is None else ~self.rows.time_only

    @property
    def record_count(self) -> int:
        """Return how many records there are, without marks and dropped rows."""
        return len(self) - (0 if self.rows.time_only is None else int(np.count_nonzero(self.rows.time_only)))

    def take(self, chosen: npt.NDArray[Any]) -> Flow:
        """Return the flow with these rows alone; `chosen` are indexes."""
        return replace(
            self,
            rows=self.rows.take(chosen),
            source=self.source[chosen],
            columns=None if self.columns is None else self.columns.take(pa.array(chosen)),
            port=None if self.port is None else self.port[chosen],
        )

    def dropping(self, kept: npt.NDArray[np.bool_]) -> Flow:
        """Return the flow where rows that are not kept only pass their time on, as behind a filter."""
        time_only = ~self.is_record | ~kept
        return replace(self, rows=replace(self.rows, time_only=time_only)) if time_only.any() else self

    def passing(self, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which rows go on from a step that keeps these: a dropped row without a key passes no time on either.

        A step that holds state would reject it, or pass it through without moving its time.
        """
        # rule: keyless-rows-move-nothing
        return ~self.is_record | kept | (self.rows.key_length >= 0)

    def records_alone(self) -> Flow:
        """Return the flow without marks and dropped rows: so Kafka Streams passes on records, and no time."""
        return self if self.rows.time_only is None else self.take(np.flatnonzero(self.is_record))


class Sifted(NamedTuple):
    """What a stateless step made of a flow: the flow behind it, and the rows that it rejected, with their causes.

    `rejected`: indexes of the rows that came in; they are not in the flow, and move no time. `filtered`: how many
    records only pass their time on from here. `added`: how many records there are more, where one became several.
    """

    flow: Flow
    rejected: Int64s
    causes: tuple[str, ...] = ()
    filtered: int = 0
    added: int = 0


class Stateless(Protocol):
    """A step that holds nothing: a function of the flows that it reads, usually one.

    What becomes of a row must depend on that row alone, so that the output does not depend on how batches are cut.
    """

    def __call__(self, *flows: Flow) -> Sifted:
        """Return what the step makes of the flows."""
        ...


@runtime_checkable
class UserStep(Stateless, Protocol):
    """A step that holds nothing and calls a function of the user's own."""

    def load(self) -> None:
        """Load the function. Raise UserError if it cannot be loaded."""
        ...
