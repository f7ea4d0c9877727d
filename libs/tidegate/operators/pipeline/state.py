"""One partition of a pipeline: the states of its steps, and the batch that passes through them.

Each step takes the whole batch before the next one begins. Between two steps there are rows and time marks in one exact
sequence (`contracts.flow`), so the output is that of a chain that takes one record at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pyarrow as pa

from tidegate.contracts.errors import BufferFull
from tidegate.contracts.event_time import ALWAYS, NEVER
from tidegate.contracts.flow import NO_SOURCE, Flow
from tidegate.contracts.operator import (
    HoldsAnyAge,
    Operator,
    OperatorState,
    ReadTable,
    StepResult,
    Storage,
    TableReader,
)
from tidegate.contracts.records import Records
from tidegate.operators.pipeline.passage.results import rows_of, tagged
from tidegate.operators.pipeline.passage.shape import Shape
from tidegate.operators.pipeline.passage.times import UNBEGUN, StepTime, Times, checksum, time_rows, times_in
from tidegate.operators.pipeline.passage.way import Batch, Stopped, Way
from tidegate.operators.pipeline.steps import Step, operators_of
from tidegate.operators.pipeline.storage import CHECKS, RECEIVED, Prefixed

_NO_RECORDS = Records.from_rows([])


class PipelineState:
    """The state of one partition of a pipeline, an OperatorState. `schema`: that of its changelog."""

    def __init__(self, steps: tuple[Step, ...], shape: Shape, schema: pa.Schema, storage: Storage) -> None:
        self._steps = steps
        self._operators = operators_of(steps)
        self._shape = shape
        self._schema = schema
        self._storage = storage
        self._grown: list[str] = []
        self._tables: dict[str, tuple[Any, int]] = {}
        self._states: dict[str, OperatorState] = {}
        self._open_all()
        self._readers = {
            table: name
            for name, state in self._states.items()
            if hasattr(state, "read_table")
            for table in cast(TableReader, state).needs()
        }
        self._own_table = next((step.table for step in steps if step.table is not None), None)
        self._floor = NEVER

    @property
    def stream_time(self) -> int:
        """Return the stream time of the first step that holds state."""
        return next(iter(self._opened().values())).stream_time

    def times(self) -> dict[str, StepTime]:
        """Return where each stateful step stands."""
        received = self._storage.arrays()[RECEIVED]
        states = self._opened()
        return {name: StepTime(states[name].stream_time, int(received[at])) for at, name in enumerate(states)}

    def read_table(self, table: Any, open_until: int = ALWAYS, name: str | None = None) -> None:
        """Use the state of a table's partition for the lookups of the step that reads it."""
        for step in self._readers.values() if name is None else [self._readers[name]]:
            self._tables[step] = table, open_until
            self._reader(step).read_table(table, open_until)

    def needs(self) -> dict[str, int]:
        """Return by table the earliest event time for which the step that reads it may still look up a version."""
        return {table: self._needs_of(step) for table, step in self._readers.items()}

    def hold(self, floor: int, needs: int) -> None:
        """Take `floor` as the time before which versions of the pipeline's own table are gone; the join says what it
        needs."""
        self._floor = floor

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Pass the records through all steps.

        A bound that is reached in an inner step stops the pipeline before the input record that caused it: what the
        batch did is undone, and the records before that one are passed through again.
        """
        return self._run(Way("step", records, clock_ms))

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance the stream time of the first steps, and pass on what becomes due and the marks.

        Raise BufferFull, with the state as before, if a bound of an inner step is reached.
        """
        return self._run(Way("advance", _NO_RECORDS, clock_ms, stream_time))

    def flush(self, clock_ms: int = 0) -> StepResult:
        """Emit everything that is held, step by step: each takes what the steps before it released, then is flushed.

        Raise BufferFull, with the state as before, if a bound of an inner step is reached.
        """
        return self._run(Way("flush", _NO_RECORDS, clock_ms))

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, of which the latest of a slot comes last.

        They say where the steps stand; the first step's stream time is the pipeline's, and is given. Time never goes
        back: a step that comes back goes on at the time that it had, and one that has become the first at that of the
        partition, which is no earlier than its own.
        """
        times = self.times() | times_in(rows)
        for at, (name, operator) in enumerate(self._operators.items()):
            # rule: first-step-keeps-time
            time = stream_time if at == 0 else times[name].stream_time
            self._opened()[name].restore(rows_of(rows, name, operator), time)
            self._storage.arrays()[RECEIVED][at] = times[name].received
        self._check_in()

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds equal states, step by step."""
        parts = [tagged(state.snapshot(), name, self._schema) for name, state in self._opened().items()]
        begun = {name: time for name, time in self.times().items() if time != UNBEGUN}
        return pa.concat_tables([self._schema.empty_table(), *parts, time_rows(begun, self._schema)])

    def _run(self, way: Way) -> StepResult:
        before, stopped = self.times(), None
        while True:
            batch = Batch(self._shape, self._schema, way)
            found = self._pass_through(batch)
            after = self._check_in()
            if found is None:
                break
            # rule: inner-bound-undone
            self._undo(batch.undo(time_rows(before, self._schema)), before)
            # records before the one that reached a bound may reach that of a step which took none of them yet
            stopped, way = found, _shortened(way, found)
        result = self._as_reader(batch.result(self.stream_time, before, after))
        return result if stopped is None else replace(result, stopped_at=stopped.source, stopped_by=stopped.limit)

    def _as_reader(self, result: StepResult) -> StepResult:
        """Return the result with the times of the steps that read tables, and what they and those before them need."""
        if self._own_table is not None:
            return result
        times = {table: self._opened()[step].stream_time for table, step in self._readers.items()}
        return replace(result, needs=self.needs(), reader_time=times)

    def _pass_through(self, batch: Batch) -> Stopped | None:
        """Take the batch through the steps; return where it stopped, if a bound was reached."""
        for step in self._steps:
            if step.function is not None:
                batch.apply(step)
                continue
            self._lend_table(step, batch)
            state = self._opened()[step.name]
            flow = self._received(step, batch)
            stopped = batch.take(step, state, flow)
            if stopped is not None:
                return stopped
        return None

    def _lend_table(self, step: Step, batch: Batch) -> None:
        """Let the join look up in the pipeline's own table, which keeps what the join may still look up.

        The table is complete up to T - grace: a version that is out of order by the grace or more may be missed.
        """
        own = self._own_table
        if own is None or step.name not in (own.step, reader := self._readers[own.step]):
            return
        table, needs = cast(Any, self._opened()[own.step]), self._needs_of(reader)
        # rule: own-table-keeps-versions
        cast(ReadTable, table).hold(max(self._floor, NEVER if batch.floor is None else batch.floor), needs)
        if step.name == reader:
            # rule: own-table-gate
            self._reader(reader).read_table(table, table.stream_time - own.grace)

    def _needs_of(self, reader: str) -> int:
        """Return the earliest event time for which a step that reads a table may still look up a version."""
        states, before = self._opened(), self._shape.operators_before(reader)
        # rule: lease-covers-steps-before
        to_come = [_earliest_result(states[step.name], step.hold or 0) for step in self._steps if step.name in before]
        return min([*to_come, *self._reader(reader).needs().values()])

    def _reader(self, step: str) -> TableReader:
        """Return the state of a step that reads a table."""
        return cast(TableReader, self._opened()[step])

    def _received(self, step: Step, batch: Batch) -> Flow:
        """Return the flow that arrives at the step, of which the records are counted."""
        received, at = self._storage.arrays()[RECEIVED], list(self._operators).index(step.name)
        flow = batch.arriving(step, int(received[at]))
        received[at] += flow.record_count
        return flow

    def _check_in(self) -> Times:
        """Write the checksums of where the steps stand; return that."""
        times = self.times()
        self._storage.arrays()[CHECKS][:] = [checksum(time) for time in times.values()]
        return times

    def _undo(self, rows: pa.Table, before: Times) -> None:
        self.restore(rows, next(iter(before.values())).stream_time)

    def _open_all(self) -> None:
        for name, operator in self._operators.items():
            self._open(name, operator)

    def _open(self, name: str, operator: Operator) -> None:
        self._states[name] = operator.open(Prefixed(self._storage, name, self._grown))
        if name in self._tables:
            cast(TableReader, self._states[name]).read_table(*self._tables[name])

    def _opened(self) -> dict[str, OperatorState]:
        """Return the steps' states; open all anew if one of them grew, because that makes the others' arrays stale."""
        if self._grown:
            self._grown.clear()
            self._open_all()
        return self._states


def _earliest_result(state: OperatorState, hold: int) -> int:
    """Return the earliest timestamp of what may leave a step later: of what it holds, or has yet to receive in time."""
    due = state.stream_time - hold
    return min(due, state.oldest()) if isinstance(state, HoldsAnyAge) else due


def _shortened(way: Way, stopped: Stopped) -> Way:
    """Return the way of the records before the one that caused the stop. Raise BufferFull if no record did."""
    if stopped.source == NO_SOURCE:
        raise BufferFull(
            f"{stopped.limit} is reached, and no record caused it",
            value=stopped.step,
            remedy="raise the bound, or let records pass before a flush",
        )
    return way._replace(records=way.records.slice(0, int((way.records.offset < stopped.source).sum())))
