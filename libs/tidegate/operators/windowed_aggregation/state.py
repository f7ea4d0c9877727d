"""The windows of one partition, over the arrays of a Storage.

This is the shell around the kernels in `step`: it maps the arrays, makes room when a kernel asks for it, and turns what
the kernel recorded into Arrow tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import MAX_TIMESTAMP, advanced
from tidegate.contracts.operator import Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Records
from tidegate.kernels import columns
from tidegate.kernels import windows as windows_kernel
from tidegate.kernels.payloads import FlatRecords, flat_records
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.touched import net_changes
from tidegate.operators import late_and_rejected
from tidegate.operators.json_values import numbers
from tidegate.operators.json_values.json_fields import Path
from tidegate.operators.shell import Header, Shell, deletions, run, stop_of
from tidegate.operators.windowed_aggregation import aggregates, bookkeeping
from tidegate.operators.windowed_aggregation import step as kernel
from tidegate.operators.windowed_aggregation.aggregates import Numbers, Plan, Words, Writing
from tidegate.operators.windowed_aggregation.batch_results import measures, tables
from tidegate.operators.windowed_aggregation.bookkeeping import FULL_BYTES, FULL_KEYS, follow_rules, held_in_order
from tidegate.operators.windowed_aggregation.config import Aggregates, Entry, JsonField, WindowedAggregationRules
from tidegate.operators.windowed_aggregation.integrity import find_damage
from tidegate.operators.windowed_aggregation.step import Outcome, State
from tidegate.operators.windowed_aggregation.window_times import MAX, PENDING, Rules, rules_of

RULES = slice(bookkeeping.NUMBERS, bookkeeping.NUMBERS + len(Rules._fields))
STREAM_TIME, WIDTH, OPENED = range(RULES.stop, RULES.stop + 3)
NUMBERS = RULES.stop + 3

STOP_REASONS = {
    FULL_KEYS: "buffer.max_keys",
    FULL_BYTES: "buffer.max_bytes",
    kernel.FULL_LENGTH: "window.max_length",
}
_NO_RECORDS = Records.from_rows([])


def layout_of(plan: Plan) -> Layout:
    """Return the layout of a state whose windows have the words of that plan."""
    capacity = windows_kernel.CAPACITY
    return Layout(
        kind="windowed_aggregation",
        version=4,
        arrays=(
            ArraySpec("numbers", "int64", "fixed", NUMBERS),
            ArraySpec("bounds", "int64", "slots", 2),
            ArraySpec("words", "int64", "words"),
            *windows_kernel.ARRAYS,
        ),
        capacity=capacity | {"words": capacity["slots"] * aggregates.width(plan)},
    )


def plan_of(config: Aggregates) -> tuple[Writing, tuple[Path, ...]]:
    """Return how the results of the aggregates are computed and written, and the fields that they read.

    Words do not depend on the order in which the configuration names the results.
    """
    entries = sorted((entry for entry in config.entries if entry.kind in aggregates.KINDS), key=_place)
    kinds = [aggregates.KINDS.index(entry.kind) for entry in entries]
    read = [path_of(entry.source) for entry in entries]
    fields = tuple(dict.fromkeys(path for kind, path in zip(kinds, read, strict=True) if kind != aggregates.COUNT))
    rows = [0 if kind == aggregates.COUNT else fields.index(path) for kind, path in zip(kinds, read, strict=True)]
    planned, names = tuple(entry.name for entry in entries), tuple(entry.name for entry in config.entries)
    return Writing(aggregates.plan(kinds, rows), planned, names, config.gives_objects), fields


def _place(entry: Entry) -> tuple[bool, int, str]:
    """Return the place of an aggregate's words: those that are named after a kind come first, by kind."""
    named = entry.name in aggregates.KINDS
    return not named, aggregates.KINDS.index(entry.name) if named else 0, entry.name


def path_of(source: JsonField | Literal[True]) -> Path:
    """Return the names that lead to what an aggregate is computed from; none: it is the value itself."""
    return source.names if isinstance(source, JsonField) else ()


def state_of(arrays: Mapping[str, Array]) -> State:
    """Return the storage's arrays as the kernels take them."""
    bounds, words = arrays["bounds"].reshape(-1, 2), arrays["words"]
    windows = windows_kernel.windows_of(arrays)
    return State(windows, bounds[:, 0], bounds[:, 1], Words(words, words.view(np.float64)), arrays["numbers"])


def damage_of(arrays: Mapping[str, Array], config: WindowedAggregationRules) -> str | None:
    """Return what is damaged in the arrays of a state between two batches; None if nothing is."""
    plan, numbers = plan_of(config.aggregate)[0].plan, arrays["numbers"]
    if numbers[OPENED] != 1 or numbers[WIDTH] != aggregates.width(plan):
        return "its numbers are impossible"
    rules = Rules(*(int(number) for number in numbers[RULES]))
    return find_damage(state_of(arrays), plan, rules)


class WindowsState:
    """The state of a windowed aggregation for one partition (an OperatorState)."""

    def __init__(self, config: WindowedAggregationRules, storage: Storage) -> None:
        self._config = config
        self._rules = rules_of(config)
        self._writing, self._fields = plan_of(config.aggregate)
        self._plan = self._writing.plan
        self._shell = Shell(storage, Header(STREAM_TIME, OPENED), state_of)
        self._begin()

    @property
    def stream_time(self) -> int:
        """Return T of the partition; NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process the records up to a stop, and count each of them once.

        The state is then what the changelog describes.
        """
        batch, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        read = numbers.read_numbers(records, self._fields)
        missing = np.where((missing == 0) & (read.code > 0), late_and_rejected.NO_NUMBER - 1 + read.code, missing)
        codes, values = missing.astype(np.int8), Numbers(read.whole, read.double, read.is_double)
        keys = keys_of(batch)
        progress = _Batch(self._outcome(len(records)))
        stopped = run(
            lambda: kernel.absorb(
                self._shell.state, keys, values, codes, newest, self._rules, self._plan, progress.outcome
            ),
            lambda signal: self._make_room(signal, progress),
            ends=(windows_kernel.DONE, *STOP_REASONS),
        )
        return self._result(batch, progress.outcome, stopped, newest)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance T to at least `stream_time`; emit what becomes due with cause `idle`."""
        outcome = self._outcome()
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        kernel.advance(self._shell.state, self._rules, self._plan, outcome)
        return self._result(flat_records(_NO_RECORDS), outcome)

    def flush(self) -> StepResult:
        """Emit every pending result with cause `flush`; with final results, close these windows."""
        held = held_in_order(self._shell.state)
        pending = held[self._shell.state.windows.phase[held] == PENDING]
        outcome = self._outcome()
        kernel.flush(self._shell.state, pending, self._rules, self._plan, outcome)
        return self._result(flat_records(_NO_RECORDS), outcome)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply the changelog rows, of which the latest of a window comes last, and set T to `stream_time`."""
        self._shell.restore(rows, stream_time, self._replay)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` makes an equal state, by window end and arrival."""
        return tables.changes(
            self._shell.state, flat_records(_NO_RECORDS), held_in_order(self._shell.state), self._writing
        )

    def _begin(self) -> None:
        """Initialize a new storage; in an old one, re-order the windows if the rules changed.

        Raises UserError if its windows have other aggregates.
        """
        numbers, width = self._shell.numbers, aggregates.width(self._plan)
        if self._shell.initialize():
            numbers[WIDTH] = width
        if numbers[WIDTH] != width:
            raise other_aggregates()
        follow_rules(self._shell.state, RULES, self._rules)
        self._fit_words()

    def _fit_words(self) -> None:
        """Grow the words so that every slot has its own."""
        wanted = self._shell.capacity("slots") * int(self._shell.numbers[WIDTH])
        if len(self._shell.state.words.whole) < wanted:
            self._shell.grow({"words": wanted})

    def _outcome(self, records: int = 0) -> Outcome:
        """Return an empty outcome with room for the least that so many records cause.

        Reserved memory takes no space until it is written to.
        """
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[kernel.STREAM_TIME] = self.stream_time
        tally[kernel.NEXT_START] = kernel.NEXT_RECORD
        tally[kernel.OVERTIME_MIN] = MAX
        tally[[kernel.OPEN_MAX, kernel.OPEN_BYTES_MAX]] = self._shell.numbers[: bookkeeping.CHECKSUM]
        room, slots = 2 * records + int(self._shell.state.windows.order.numbers[HELD]), self._shell.capacity("slots")
        return Outcome(
            slot=np.empty(room, np.int64),
            cause=np.empty(room, np.int8),
            emitted_after=np.empty(room, np.int64),
            timestamp=np.empty(room, np.int64),
            offset=np.empty(room, np.int64),
            words=np.empty(room * aggregates.width(self._plan), np.int64),
            touched=np.empty(slots, np.int32),
            before=kernel.Before(
                words=np.empty(slots * aggregates.width(self._plan), np.int64),
                phase=np.empty(slots, np.int8),
                timestamp=np.empty(slots, np.int64),
                offset=np.empty(slots, np.int64),
            ),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def _make_room(self, signal: int, progress: _Batch) -> None:
        """Make the room that the kernel asked for: in the state, in the outcome, or in both."""
        outcome, width = progress.outcome, aggregates.width(self._plan)
        state, wanted = self._shell.state, int(outcome.tally[kernel.NEEDED])
        if signal == kernel.NEEDS_EMISSIONS:
            room = 2 * len(outcome.slot) + int(state.windows.order.numbers[HELD]) + wanted
            progress.outcome = _larger(outcome, room, width)
            return
        self._shell.make_any_room(lambda storage: windows_kernel.make_room(storage, state.windows, signal, wanted))
        self._fit_words()
        progress.outcome = _with_touched(outcome, self._shell.capacity("slots"), width)

    def _replay(self, rows: pa.RecordBatch) -> None:
        if "words" not in rows.schema.names:
            raise other_aggregates()
        keys = keys_of(flat_records(columns.records_of(rows)))
        read = kernel.Changes(
            deletions(rows),
            start=columns.int_column(rows.column("window_start")),
            end=columns.int_column(rows.column("window_end")),
            arrival=columns.int_column(rows.column("arrival")),
            phase=columns.int_column(rows.column("phase")),
            words=self._words_of(rows),
        )
        progress = _Batch(self._outcome())
        run(
            lambda: kernel.replay(self._shell.state, keys, read, self._rules, self._plan, progress.outcome),
            lambda signal: self._make_room(signal, progress),
        )

    def _words_of(self, rows: pa.RecordBatch) -> Array:
        """Return the words of the rows' windows, one after the other; 0 for rows without words."""
        size = 8 * int(self._shell.numbers[WIDTH])
        try:
            fixed = rows.column("words").fill_null(bytes(size)).cast(pa.binary(size))
        except pa.ArrowInvalid:
            raise other_aggregates() from None
        return np.frombuffer(fixed.buffers()[1], np.int64)[fixed.offset * size // 8 :][: len(fixed) * size // 8].copy()

    def _result(
        self, batch: FlatRecords, outcome: Outcome, stopped: int = windows_kernel.DONE, newest: int = MAX_TIMESTAMP
    ) -> StepResult:
        """Build the tables of the batch from the outcome, then settle the batch."""
        before, touched = self.stream_time, outcome.touched[: outcome.tally[kernel.TOUCHED]]
        changed = net_changes(self._shell.state.windows.status, touched)
        emissions = tables.emissions(self._shell.state, batch, outcome, self._writing)
        changes = tables.changes(self._shell.state, batch, touched[changed], self._writing)
        undo = tables.undo(self._shell.state, outcome, changed, self._plan)
        stored = self._shell.state.windows.versions.payloads
        late = tables.late(stored, batch, outcome.unaccepted, self._rules)
        rejected = late_and_rejected.rejected(stored, batch, outcome.unaccepted, newest)
        kernel.settle(self._shell.state, self._plan, outcome)
        self._shell.stream_time = outcome.tally[kernel.STREAM_TIME]
        stop = stop_of(stopped, STOP_REASONS, batch, outcome.tally[kernel.NEXT_ROW])
        return StepResult(
            emissions=emissions,
            late=late,
            rejected=rejected,
            changes=changes,
            undo=undo,
            counts=measures.counts(self._shell.state.windows.order, outcome),
            stream_time=self.stream_time,
            stopped_at=stop.offset,
            stopped_by=stop.limit,
            measures=measures.measures(self._shell.state.numbers, outcome, self._config),
            passage=measures.passage(before, batch, outcome, emissions["window_end"].to_numpy(), self._rules),
        )


class _Batch:
    """A batch in progress. Its outcome is replaced by a larger one when it lacks room."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


def other_aggregates() -> UserError:
    """Return the error for a state that cannot continue under this configuration."""
    return UserError(
        "the windows that are held have other aggregates than the configuration",
        remedy="give the operator a new name, or take back the change of `aggregate`",
    )


def keys_of(batch: FlatRecords) -> FlatRecords:
    """Return the records without values and headers: a window stores its key only."""
    none = np.zeros(len(batch.offset), np.int64)
    return batch._replace(value_length=none - 1, headers_length=none)


def _larger(outcome: Outcome, room: int, width: int) -> Outcome:
    """Return the outcome with more room for emissions."""
    used = int(outcome.tally[kernel.EMITTED_COUNT])
    return outcome._replace(
        slot=longer(outcome.slot, room, used),
        cause=longer(outcome.cause, room, used),
        emitted_after=longer(outcome.emitted_after, room, used),
        timestamp=longer(outcome.timestamp, room, used),
        offset=longer(outcome.offset, room, used),
        words=longer(outcome.words, room * width, used * width),
    )


def _with_touched(outcome: Outcome, slots: int, width: int) -> Outcome:
    """Return the outcome with room for every slot to be touched."""
    used, before = int(outcome.tally[kernel.TOUCHED]), outcome.before
    return outcome._replace(
        touched=longer(outcome.touched, slots, used),
        before=kernel.Before(
            words=longer(before.words, slots * width, used * width),
            phase=longer(before.phase, slots, used),
            timestamp=longer(before.timestamp, slots, used),
            offset=longer(before.offset, slots, used),
        ),
    )


def longer(array: Array, length: int, used: int) -> Array:
    """Return a longer array that begins with the items in use."""
    grown = np.empty(length, array.dtype)
    grown[:used] = array[:used]
    return grown
