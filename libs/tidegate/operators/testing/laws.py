"""The player of property tests ("laws"): plays a history of one partition and records the result.

A history is a list of records, advances of stream time, flushes, tables to read, clocks and configuration changes.
`Partition` plays it on a real operator and records everything that is visible from outside in a `Trace`. A reference
implementation fills a `Trace` too, so that whole traces can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, cast

import pyarrow as pa

from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import BufferFull
from tidegate.contracts.event_time import ALWAYS, MAX_TIMESTAMP, NEVER, NO_STREAM_TIME
from tidegate.contracts.operator import Layout, Operator, OperatorState, ReadTable, StepResult, TableReader
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for

NO_RECORD = -1
"""Where an operator stops if no record has caused that."""
WINDOW_MS = 5
"""The length of most windows that histories name."""


class Advance(NamedTuple):
    """An advance of stream time by `by_ms`, without a record."""

    by_ms: int


class Flush(NamedTuple):
    """A flush: everything held is released."""


class Table(NamedTuple):
    """A new version of a table that the operator reads, made of these records.

    It is complete for event times up to `open_until`; held records that waited for it are released as far as that
    allows. `name`: of the table; None: every table that the operator reads. `floor`: the time before which versions are
    gone; None: that of its retention. `shares_batch`: the batch of the next event reads it; else one without records
    does.
    """

    config: OperatorRules
    rows: tuple[Row, ...]
    open_until: int = ALWAYS
    name: str | None = None
    floor: int | None = None
    shares_batch: bool = False

    def state(self, clock_ms: int) -> OperatorState:
        """Return the table's state after one batch with this clock."""
        operator = operator_for(self.config)
        state = operator.open(MemoryStorage(operator.layout, b"%16d" % len(self.rows)))
        if self.floor is not None:
            cast(ReadTable, state).hold(NEVER, NEVER)
        state.step(Records.from_rows(self.rows), clock_ms)
        if self.floor is not None:
            cast(ReadTable, state).hold(self.floor, self.floor)
        return state


class Clock(NamedTuple):
    """The wall clock of this batch, which has no record, and of the following batches."""

    ms: int


class Hold(NamedTuple):
    """The needs of a table's readers: the table keeps what they may look up as of `needs` or later."""

    needs: int


class Change(NamedTuple):
    """A configuration that is used from here on; held records that it no longer holds are released.

    `runs`: whether a batch without records follows at once; a partition that holds nothing runs none.
    """

    config: OperatorRules
    runs: bool = True


Event = Row | Advance | Flush | Table | Hold | Clock | Change


class Pinned(list[Row]):
    """The records of a batch that reads new versions of tables."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.tables = [table]


class Asked(NamedTuple):
    """An advance or a flush by a batch that reads new versions of tables."""

    tables: list[Table]
    event: Advance | Flush


Step = list[Row] | Advance | Flush | Table | Hold | Clock | Change | Asked


@dataclass
class Trace:
    """Everything that a history made visible: output rows, sums of counts, and stream time and held rows at the end."""

    emissions: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    applied: int = 0
    superseded: int = 0
    stream_time: int = -1
    held: list[dict[str, Any]] = field(default_factory=list)
    held_bytes: int = 0
    stopped_at: int | None = None
    lateness: dict[str, int] = field(default_factory=dict)
    floor: int | None = None
    marks: list[tuple[int, int]] = field(default_factory=list)
    last_mark = NO_STREAM_TIME  # no field, so not compared: the time of the newest mark under this configuration

    def note(self, result: StepResult, hold: int | None) -> None:
        """Add the result of a batch to the trace. `hold`: how far the marks of the operator stay behind its time."""
        if result.passage is not None:  # a pipeline passes no marks on
            assert result.passage.stream_times()[-1] == result.stream_time
            marks = result.passage.marks(hold)
            for at, time in zip(marks.at, marks.time, strict=True):
                self.note_mark(len(self.emissions) + int(at), int(time))
        self.emissions += result.emissions.to_pylist()
        self.late += result.late.to_pylist()
        self.rejected += result.rejected.to_pylist()
        self.applied += result.counts.applied
        self.superseded += result.counts.superseded
        self.stream_time = result.stream_time
        self.held_bytes = result.counts.held_bytes
        self.stopped_at = result.stopped_at
        self.floor = result.floor
        for name, number in result.measures.items():
            if name.startswith("lateness_"):
                self.note_lateness(name, number)

    def note_mark(self, emissions: int, time: int) -> None:
        """Add a time mark that stands behind so many emissions, unless it is not larger than the last one."""
        if time > self.last_mark:
            self.marks.append((emissions, time))
            self.last_mark = time

    def note_change(self) -> None:
        """Let marks begin anew: a step that comes with a change has got none, and the hold may be longer now."""
        self.last_mark = NO_STREAM_TIME

    def note_lateness(self, name: str, number: int) -> None:
        """Add the number to that lateness measure; a measure named `..._max` keeps the larger one.

        0 adds no entry; sums stop at 2^63 - 1.
        """
        if number == 0:
            return
        before = self.lateness.get(name, 0)
        self.lateness[name] = max(before, number) if name.endswith("_max") else min(before + number, MAX_TIMESTAMP)

    def as_dict(self) -> dict[str, Any]:
        """Return the trace as a dictionary, for comparison in another process."""
        return asdict(self)


def small(layout: Layout) -> Layout:
    """Return the layout with minimal capacities, so that small histories make the arrays grow."""
    return replace(layout, capacity={name: max(1, size // 1024) for name, size in layout.capacity.items()})


def batches(history: Sequence[Event], cuts: set[int]) -> list[Step]:
    """Split the history into steps: consecutive records are one batch, unless there is a cut between them."""
    steps: list[Step] = []
    for at, event in enumerate(history):
        last = steps[-1] if steps else None
        if isinstance(event, Table) and event.shares_batch:
            if isinstance(last, Pinned) and not last:
                last.tables.append(event)
            else:
                steps.append(Pinned(event))
        elif isinstance(event, Advance | Flush) and isinstance(last, Pinned) and not last:
            steps[-1] = Asked(last.tables, event)
        elif not isinstance(event, Row):
            steps.append(event)
        elif isinstance(last, list) and (at not in cuts or not last):
            last.append(event)
        else:
            steps.append([event])
    return steps


def _read_in(step: Step) -> list[Table]:
    """Return the versions of tables that the step reads before it does anything else."""
    if isinstance(step, Table):
        return [step]
    return step.tables if isinstance(step, Pinned | Asked) else []


def held_rows(rows: pa.Table) -> pa.Table:
    """Return the state rows that hold something; other rows of a pipeline say where its steps stand."""
    return rows.filter(rows["step"].is_valid()) if "step" in rows.column_names else rows


def hold_of(operator: Operator) -> int | None:
    """Return how far the operator's marks stay behind its time, if its input has windows of WINDOW_MS."""
    rules: OperatorRules | None = getattr(operator, "config", None)
    return None if rules is None else rules.hold(WINDOW_MS)


def sort_by_step(trace: Trace) -> None:
    """Sort rows by their steps: the cut into batches decides between which rows of other steps a step's rows stand.

    Rejected rows are sorted by their source as well: what passes a step's results on rejects rows under its name, too.
    """
    for rows in (trace.emissions, trace.late):
        rows.sort(key=lambda row: row.get("step") or "")
    trace.rejected.sort(key=lambda row: (row["step"], row["source"]) if row.get("step") else ("", 0))


class Partition:
    """One partition of an operator, with its storage and its trace."""

    def __init__(self, operator: Operator, clock_ms: int, layout: Layout | None = None) -> None:
        self.operator = operator
        self.clock_ms = clock_ms
        self.trace = Trace()
        self._layout = layout or small(operator.layout)
        self.tables: dict[str | None, tuple[OperatorState, int]] = {}
        self.needs = ALWAYS
        self._storages = 0
        self._open(self._new_storage())

    def play(self, step: Step) -> StepResult:
        """Run the step and add its result to the trace."""
        result = self.attempt(step)
        if isinstance(step, Change):
            self.trace.note_change()
        self.needs = step.needs if isinstance(step, Hold) else self.needs
        self.trace.note(result, hold_of(self.operator))
        return result

    def attempt(self, step: Step) -> StepResult:
        """Run the step without adding it to the trace, like an attempt at a batch before its commit.

        An advance or a flush by which a step of a pipeline reaches a bound does nothing, and stops the operator.
        """
        try:
            return self._attempt(step)
        except BufferFull:
            return replace(self._attempt([]), stopped_at=NO_RECORD)

    def _attempt(self, step: Step) -> StepResult:
        for table in _read_in(step):
            self.read_table(table.state(self.clock_ms), table.open_until, table.name)
        event = step.event if isinstance(step, Asked) else step
        if isinstance(event, Advance):
            return self.state.advance(max(0, self.state.stream_time) + event.by_ms, self.clock_ms)
        if isinstance(event, Flush):
            return self.state.flush()
        if isinstance(step, Hold):
            self._hold(step.needs)
        elif isinstance(step, Clock):
            self.clock_ms = step.ms
        elif isinstance(step, Change):
            self.operator = operator_for(step.config)
            self.reopen(self.storage)
        return self.state.step(Records.from_rows(step if isinstance(step, list) else []), self.clock_ms)

    def read_table(self, table: OperatorState, open_until: int = ALWAYS, name: str | None = None) -> None:
        """Set a table that the operator reads from now on, also after restarts."""
        self.read_tables({name: (table, open_until)})

    def read_tables(self, tables: Mapping[str | None, tuple[OperatorState, int]]) -> None:
        """Set tables by name, with the times up to which each is complete; leave out those that nothing reads."""
        reader = cast(TableReader, self.state)
        for name, (table, open_until) in tables.items():
            if name is None or name in reader.needs():
                self.tables[name] = table, open_until
                reader.read_table(table, open_until, name)

    def _hold(self, needs: int) -> None:
        """Set the floor that the log records and what readers need, as after a restart of a table history."""
        if self.trace.floor is not None or needs != ALWAYS:
            floor = NEVER if self.trace.floor is None else self.trace.floor
            cast(ReadTable, self.state).hold(floor, needs)

    def play_all(self, history: Sequence[Event], cuts: set[int]) -> Trace:
        """Play the history until its end or until a bound stops the operator, and return the finished trace."""
        for step in batches(history, cuts):
            if self.play(step).stopped_at is not None:
                break
        return self.finished()

    def finished(self) -> Trace:
        """Return the trace with the rows that are held now."""
        self.trace.held = self.state.snapshot().to_pylist()
        sort_by_step(self.trace)
        return self.trace

    def reopen(self, storage: MemoryStorage) -> None:
        """Continue from a copy of the storage, as in a restart from a local checkpoint."""
        self._open(storage.copy())

    def catch_up(self, rows: pa.Table) -> None:
        """Apply the log's rows to the state. Its stream time becomes that of the trace."""
        self.state.restore(rows, self.trace.stream_time)
        self._hold(self.needs)

    def reconfigure(self, config: OperatorRules, log: pa.Table) -> None:
        """Continue under another configuration; rebuild the state from the log's rows if it has another layout."""
        version, self.operator = self.operator.layout.version, operator_for(config)
        if self.operator.layout.version == version:
            self.reopen(self.storage)
        else:
            self._layout = small(self.operator.layout)
            self.rebuild(log)

    def rebuild(self, rows: pa.Table) -> None:
        """Continue from an empty storage and the log's rows, as in a restart from the operator log."""
        self._open(self._new_storage())
        self.catch_up(rows)

    def _new_storage(self) -> MemoryStorage:
        """Return an empty storage with a new hash seed each time: nothing visible may depend on the seed."""
        self._storages += 1
        return MemoryStorage(self._layout, b"%16d" % self._storages)

    def _open(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.state: OperatorState = self.operator.open(storage)
        self.read_tables(self.tables)
        self._hold(self.needs)
