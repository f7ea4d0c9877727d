"""The windows of one partition and their elements, over the arrays of a Storage.

This is the shell around the kernels in `step`: it maps the arrays and makes room when a kernel asks for it. It computes
the values of windows that fired, calls the functions that remove elements, and turns what the kernel recorded into
Arrow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.event_time import MAX_TIMESTAMP, advanced
from tidegate.contracts.operator import Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import NULL_LENGTH, Records
from tidegate.kernels import columns, payloads
from tidegate.kernels import windows as windows_kernel
from tidegate.kernels.codecs.port import Decoded
from tidegate.kernels.memory import slots
from tidegate.kernels.payloads import FlatRecords, flat_records
from tidegate.kernels.touched import STORED, net_changes
from tidegate.operators import late_and_rejected
from tidegate.operators.json_values import numbers
from tidegate.operators.json_values.json_fields import Path
from tidegate.operators.options.reducer import Reducer
from tidegate.operators.shell import Header, Shell, deletions, run, stop_of
from tidegate.operators.windowed_aggregation import bookkeeping
from tidegate.operators.windowed_aggregation import step as common
from tidegate.operators.windowed_aggregation.aggregates import Numbers, Writing
from tidegate.operators.windowed_aggregation.batch_results import measures
from tidegate.operators.windowed_aggregation.batch_results.tables import late
from tidegate.operators.windowed_aggregation.bookkeeping import follow_rules, held_in_order
from tidegate.operators.windowed_aggregation.config import DeltaEvictor, WindowedAggregationRules
from tidegate.operators.windowed_aggregation.config.aggregates import OF_ELEMENTS
from tidegate.operators.windowed_aggregation.elements import recording, replay, results, store, tables
from tidegate.operators.windowed_aggregation.elements import step as kernel
from tidegate.operators.windowed_aggregation.elements.evictors import evictor_of
from tidegate.operators.windowed_aggregation.elements.functions import Context, Fired, Functions, Windows
from tidegate.operators.windowed_aggregation.elements.integrity import find_damage
from tidegate.operators.windowed_aggregation.elements.recording import Outcome, Rows, State, Trigger
from tidegate.operators.windowed_aggregation.elements.results import Lists
from tidegate.operators.windowed_aggregation.elements.unmergeable import UNMERGEABLE, with_causes
from tidegate.operators.windowed_aggregation.state import (
    STOP_REASONS,
    keys_of,
    longer,
    other_aggregates,
    path_of,
    plan_of,
)
from tidegate.operators.windowed_aggregation.window_times import MAX, PENDING, SESSION, Rules, rules_of

RULES = slice(recording.NUMBERS, recording.NUMBERS + len(Rules._fields))
STREAM_TIME, READ, OPENED = range(RULES.stop, RULES.stop + 3)
NUMBERS = RULES.stop + 3
"""READ: a hash of the fields whose numbers the elements have."""

LISTS = 4
"""Room for listed elements between two rounds, as a multiple of the elements that there is room for."""

MERGED_AT_ONCE = 2**16
"""Room for listed elements between two rounds where a function merges them, which a round makes few again."""

_NO_RECORDS = Records.from_rows([])
_ENDS = (windows_kernel.DONE, *STOP_REASONS)


def read_of(config: WindowedAggregationRules) -> tuple[Writing, tuple[Path, ...], int]:
    """Return how results are written, the fields that are read, and which of them the evictor compares."""
    writing, fields = plan_of(config.aggregate)
    evictor = config.evictor
    if not isinstance(evictor, DeltaEvictor) or isinstance(evictor.delta.distance, str):
        return writing, fields, 0
    field = path_of(evictor.delta.distance)
    fields = fields if field in fields else (*fields, field)
    return writing, fields, fields.index(field)


def layout_of(config: WindowedAggregationRules) -> Layout:
    """Return the layout of a state whose elements have the numbers that the configuration reads."""
    return Layout(
        kind="windows_with_elements",
        version=2,
        arrays=(
            ArraySpec("numbers", "int64", "fixed", NUMBERS),
            ArraySpec("bounds", "int64", "slots", 2),
            *windows_kernel.ARRAYS,
            *store.arrays_of(len(read_of(config)[1])),
        ),
        capacity=windows_kernel.CAPACITY | store.CAPACITY,
    )


def state_of(arrays: Mapping[str, Array]) -> State:
    """Return the storage's arrays as the kernels take them."""
    bounds = arrays["bounds"].reshape(-1, 2)
    content, elements = store.content_of(arrays), store.elements_of(arrays)
    windows = windows_kernel.windows_of(arrays)
    return State(windows, bounds[:, 0], bounds[:, 1], content, elements, arrays["numbers"])


def damage_of(arrays: Mapping[str, Array], config: WindowedAggregationRules) -> str | None:
    """Return what is damaged in the arrays of a state between two batches; None if nothing is."""
    found = arrays["numbers"]
    if found[OPENED] != 1 or found[READ] != _hash(read_of(config)[1]):
        return "its numbers are impossible"
    return find_damage(state_of(arrays), Rules(*(int(number) for number in found[RULES])))


def _hash(fields: tuple[Path, ...]) -> int:
    """Return a hash of the fields, which is that of former releases if all are top-level fields or values."""
    written = tuple(field if len(field) > 1 else next(iter(field), None) for field in fields)
    return crc32(repr(written).encode())


class ElementsState:
    """The state of a windowed aggregation with elements, for one partition (an OperatorState)."""

    def __init__(self, config: WindowedAggregationRules, functions: Functions, storage: Storage) -> None:
        self._config = config
        self._functions = functions
        self._rules = rules_of(config)
        self._writing, self._fields, number = read_of(config)
        self._trigger = Trigger(config.every or 1, evictor_of(config, number))
        self._shell = Shell(storage, Header(STREAM_TIME, OPENED), state_of)
        self._begin()

    @property
    def stream_time(self) -> int:
        """Return T of the partition; NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int, advances_to: Array | None = None) -> StepResult:
        """Process the records up to a stop, and count each of them once.

        The state is then what the changelog describes. `advances_to`: the least T after each record, so that time can
        come from elsewhere; default: the record's timestamp.
        """
        batch, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        progress = _Batch(clock_ms, self._outcome(len(records)))
        rows = self._rows(records, batch, self._unmergeable(records, missing, progress), newest, advances_to)
        progress.advances_to = rows.advances_to
        stopped = self._run(
            lambda: kernel.absorb(self._shell.state, rows, self._rules, self._trigger, progress.outcome), progress
        )
        return self._result(batch, progress, stopped, newest)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance T to at least `stream_time`; emit what becomes due with cause `idle`."""
        progress = _Batch(None, self._outcome())
        progress.outcome.tally[common.STREAM_TIME] = advanced(self.stream_time, stream_time)
        self._run(lambda: kernel.advance(self._shell.state, self._rules, self._trigger, progress.outcome), progress)
        return self._result(flat_records(_NO_RECORDS), progress)

    def flush(self) -> StepResult:
        """Emit every pending result with cause `flush`; with final results, close these windows."""
        held = held_in_order(self._shell.state)
        pending = held[self._shell.state.windows.phase[held] == PENDING]
        progress = _Batch(None, self._outcome())
        self._run(
            lambda: kernel.flush(self._shell.state, pending, self._rules, self._trigger, progress.outcome), progress
        )
        return self._result(flat_records(_NO_RECORDS), progress)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply the changelog rows, of which the latest of a slot comes last, and set T to `stream_time`."""
        if self._rules.kind != SESSION or "since" not in rows.column_names:
            self._shell.restore(rows, stream_time, self._replay)
            return
        is_session = pc.equal(rows["arrival"], recording.WINDOW)
        self._shell.restore(rows.filter(is_session), stream_time, self._replay_sessions)
        self._shell.restore(rows.filter(pc.invert(is_session)), stream_time, self._replay_elements)
        self._hand_back()

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` makes an equal state.

        Windows come first, by end and arrival, then elements in the order of their windows.
        """
        held, elements = held_in_order(self._shell.state), self._shell.state.elements
        rank = np.zeros(len(self._shell.state.start), np.int64)
        rank[held] = np.arange(len(held))
        used = int(elements.pool.numbers[slots.USED])
        listed = np.flatnonzero(elements.status[:used] == STORED)
        order = np.lexsort((elements.payloads.offset[listed], rank[elements.window[listed]]))
        return tables.snapshot(self._shell.state, held, listed[order], self._rules)

    def _begin(self) -> None:
        """Initialize a new storage; in an old one, re-order the windows if the rules changed.

        Raises UserError if its elements have the numbers of other fields.
        """
        numbers = self._shell.numbers
        if self._shell.initialize():
            numbers[READ] = _hash(self._fields)
        if numbers[READ] != _hash(self._fields):
            raise other_aggregates()
        follow_rules(self._shell.state, RULES, self._rules)

    def _rows(
        self, records: Records, batch: FlatRecords, missing: Array, newest: int, advances_to: Array | None
    ) -> Rows:
        """Return the records with the numbers read from them, and the reason where something is missing."""
        read = numbers.read_numbers(records, self._fields)
        codes = np.where(missing > 0, missing, _coded(read.code))
        codes = np.where(codes > 0, codes, _coded(self._missing_parts(records)))
        advances_to = batch.timestamp if advances_to is None else _frozen(advances_to)
        whole = Numbers(read.whole, read.double, read.is_double)
        return Rows(keys_of(batch), _values_of(batch), advances_to, whole, codes.astype(np.int8), newest)

    def _unmergeable(self, records: Records, missing: Array, progress: _Batch) -> Array:
        """Return the codes, with that of records whose values a function should merge and cannot."""
        if self._functions.reducer is None:
            return missing
        progress.read = self._functions.reducer.read(records.data, records.value_start, records.value_length)
        return np.where((missing == 0) & (progress.read.code > 0), UNMERGEABLE, missing)

    def _missing_parts(self, records: Records) -> Array:
        of_elements = (entry for entry in self._config.aggregate.entries if entry.kind in OF_ELEMENTS)
        fields = dict.fromkeys(path_of(entry.source) for entry in of_elements)
        return numbers.missing_parts(records, tuple(sorted(fields, key=bool)))

    def _outcome(self, records: int = 0) -> Outcome:
        """Return an empty outcome with room for the least that so many records cause.

        Reserved memory takes no space until it is written to.
        """
        tally = np.zeros(recording.TALLIES, np.int64)
        tally[common.STREAM_TIME] = self.stream_time
        tally[common.NEXT_START] = common.NEXT_RECORD
        tally[common.OVERTIME_MIN] = MAX
        tally[[common.OPEN_MAX, common.OPEN_BYTES_MAX]] = self._shell.numbers[: bookkeeping.CHECKSUM]
        room, slots, elements = 2 * records + 1, self._shell.capacity("slots"), self._shell.capacity("elements")
        listed = LISTS * elements if self._functions.reducer is None else MERGED_AT_ONCE
        return Outcome(
            slot=np.empty(room, np.int64),
            cause=np.empty(room, np.int8),
            emitted_after=np.empty(room, np.int64),
            start=np.empty(room, np.int64),
            end=np.empty(room, np.int64),
            timestamp=np.empty(room, np.int64),
            offset=np.empty(room, np.int64),
            stream_time=np.empty(room, np.int64),
            ends=np.empty(room, np.int64),
            listed=np.empty(listed, np.int32),
            touched=np.empty(slots, np.int32),
            before=recording.Before(
                start=np.empty(slots, np.int64),
                end=np.empty(slots, np.int64),
                opened=np.empty(slots, np.int64),
                since=np.empty(slots, np.int64),
                phase=np.empty(slots, np.int32),
                timestamp=np.empty(slots, np.int64),
                offset=np.empty(slots, np.int64),
            ),
            touched_elements=np.empty(elements, np.int32),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def _run(self, work: Callable[[], int], progress: _Batch) -> int:
        """Run the kernel until it is done or stops, and the last round; return the kernel's last signal."""
        signal = run(work, lambda signal: self._serve(signal, progress), _ENDS)
        self._round(progress)
        self._reduce(progress)
        return signal

    def _serve(self, signal: int, progress: _Batch) -> None:
        """Do what the kernel asked for, so that it can be called again."""
        tally = progress.outcome.tally
        wanted = int(tally[common.NEEDED])
        if signal == common.NEEDS_EMISSIONS:
            progress.outcome = _with_emissions(progress.outcome, 2 * len(progress.outcome.slot) + wanted)
        elif signal == recording.NEEDS_ROUND and tally[common.EMITTED_COUNT] > tally[recording.ROUND]:
            self._round(progress)
            self._reduce(progress)
        elif signal == recording.NEEDS_ROUND:
            progress.outcome = progress.outcome._replace(listed=np.empty(2 * wanted, np.int32))
        else:
            self._make_room(signal, wanted)
            progress.outcome = _with_touched(
                progress.outcome, self._shell.capacity("slots"), self._shell.capacity("elements")
            )

    def _make_room(self, signal: int, wanted: int) -> None:
        state = self._shell.state
        if signal == recording.NEEDS_ELEMENT:
            self._shell.add_slots("elements")
        elif signal == recording.NEEDS_VALUES:
            stored, used = state.elements.payloads, int(state.elements.pool.numbers[slots.USED])
            self._shell.make_room("values", stored.arena, wanted, partial(payloads.repack, stored, used))
        else:
            self._shell.make_any_room(lambda storage: windows_kernel.make_room(storage, state.windows, signal, wanted))

    def _round(self, progress: _Batch) -> None:
        """Compute the values of windows that fired since the last round, and remove what functions choose."""
        outcome = progress.outcome
        first, last = int(outcome.tally[recording.ROUND]), int(outcome.tally[common.EMITTED_COUNT])
        if first == last:
            return
        is_fired = outcome.cause[first:last] != common.MERGED
        fired = first + np.flatnonzero(is_fired)
        offsets = np.concatenate([[0], outcome.ends[fired]])
        lists = Lists(outcome.listed[: outcome.tally[recording.LISTED]].astype(np.int64), offsets)
        if len(fired):
            lists = self._evicted(self._functions.before, lists, progress, fired)
            values = self._values(lists, progress, fired)
            self._evicted(self._functions.after, lists, progress, fired)
        else:
            values = pa.array([], pa.binary())
        progress.values.append(_with_nulls(values, is_fired))
        kernel.end_round(self._shell.state, outcome)

    def _evicted(self, mask: Callable[[Fired], Array] | None, lists: Lists, progress: _Batch, fired: Array) -> Lists:
        """Remove the elements that the function chooses, and return the lists without them."""
        if mask is None:
            return lists
        gone = mask(self._fired(lists, progress, fired))
        kernel.remove_chosen(self._shell.state, lists.slots[gone], progress.outcome)
        return lists.without(gone)

    def _values(self, lists: Lists, progress: _Batch, fired: Array) -> pa.Array:
        if self._functions.reducer is not None:
            return self._reduced(lists, self._functions.reducer)
        if self._functions.value is not None:
            return self._functions.value.values(self._fired(lists, progress, fired))
        return results.results(self._shell.state.elements, lists, self._writing, self._config.aggregate)

    def _reduce(self, progress: _Batch) -> None:
        """Put in place of the elements of each window what they are merged into, if a function merges them."""
        state, touched = self._shell.state, progress.outcome.touched[: progress.outcome.tally[common.TOUCHED]]
        windows = touched[state.content.length[touched] > 1].astype(np.int64)
        if self._functions.reducer is None or not len(windows):
            return
        offsets = np.concatenate([[0], np.cumsum(state.content.length[windows], dtype=np.int64)])
        lists = Lists(np.empty(offsets[-1], np.int64), offsets)
        kernel.list_elements(state, windows, lists.slots)
        newest, none = lists.slots[offsets[1:] - 1], pa.nulls(len(windows), pa.binary())
        rows = pa.record_batch(
            {"key": none, "value": self._reduced(lists, self._functions.reducer), "headers": none}
            | {name: getattr(state.elements.payloads, name)[newest] for name in ("timestamp", "offset")}
        )
        merged, whole = _values_of(flat_records(columns.records_of(rows))), np.zeros((0, len(windows)), np.int64)
        none_read = Numbers(whole, whole.astype(np.float64), whole.astype(np.bool_))
        run(
            lambda: kernel.replace_elements(self._shell.state, merged, windows, none_read, progress.outcome),
            lambda signal: self._serve(signal, progress),
        )

    def _reduced(self, lists: Lists, reducer: Reducer) -> pa.Array:
        """Return what the values of each list of elements are merged into, as JSON."""
        elements, (slots_read, places) = self._shell.state.elements, np.unique(lists.slots, return_inverse=True)
        read = reducer.read(elements.payloads.arena.data, *results.places_of(elements, slots_read))
        return reducer.texts(read, places, lists.offsets)

    def _fired(self, lists: Lists, progress: _Batch, fired: Array) -> Fired:
        """Return the windows that fired as functions get them."""
        outcome, elements = progress.outcome, self._shell.state.elements
        keys = tables.keys(self._shell.state, outcome.slot[fired]).combine_chunks()
        return Fired(
            values=results.values(elements, lists),
            timestamps=elements.payloads.timestamp[lists.slots],
            element_offsets=lists.offsets,
            windows=Windows(keys, outcome.start[fired], outcome.end[fired]),
            context=Context(outcome.stream_time[fired], progress.clock_ms),
        )

    def _replay(self, rows: pa.RecordBatch) -> None:
        read = self._read(rows)
        self._apply(lambda outcome: replay.replay(self._shell.state, *read, self._rules, outcome))

    def _replay_sessions(self, rows: pa.RecordBatch) -> None:
        read = self._read(rows)
        self._apply(lambda outcome: replay.open_holders(self._shell.state, read.rows, read.changes, outcome))
        self._apply(lambda outcome: replay.replay_sessions(self._shell.state, *read, self._rules, outcome))

    def _replay_elements(self, rows: pa.RecordBatch) -> None:
        read = self._read(rows)
        self._apply(lambda outcome: replay.open_holders(self._shell.state, read.rows, read.changes, outcome))
        self._apply(lambda outcome: replay.replay_elements(self._shell.state, read.rows, read.changes, outcome))

    def _apply(self, kernel: Callable[[Outcome], int]) -> None:
        progress = _Batch(None, self._outcome())
        self._run(lambda: kernel(progress.outcome), progress)

    def _read(self, rows: pa.RecordBatch) -> _Changelog:
        """Return changelog rows as the kernels take them. Raises UserError if they are of other aggregates."""
        if "since" not in rows.schema.names:
            raise other_aggregates()
        records = columns.records_of(rows)
        whole, arrival = flat_records(records)._replace(headers_length=_zeros(rows)), _numbers(rows, "arrival")
        read = self._read_elements(records, arrival)
        changes = replay.Changes(
            deletions(rows),
            start=_numbers(rows, "window_start"),
            end=_numbers(rows, "window_end"),
            arrival=arrival,
            opened=_numbers(rows, "opened"),
            since=_numbers(rows, "since"),
            phase=_numbers(rows, "phase"),
        )
        elements = Rows(keys_of(whole), _values_of(whole), arrival, read, _zeros(rows).astype(np.int8), MAX_TIMESTAMP)
        return _Changelog(whole, elements, changes)

    def _hand_back(self) -> None:
        """Give the elements that wait for their sessions to them."""
        windows = self._shell.state.windows
        used = int(windows.pool.numbers[slots.USED])
        held = (windows.phase[:used] == replay.HOLDER) & (windows.status[:used] == STORED)
        if held.any():
            replay.hand_back(self._shell.state, np.flatnonzero(held), self._outcome())

    def _read_elements(self, records: Records, arrival: Array) -> Numbers:
        """Return the numbers of the rows that are elements. Raises UserError if one lacks a number."""
        read = numbers.read_numbers(records, self._fields)
        if np.any((read.code > 0) & (arrival != recording.WINDOW) & (records.value_length != NULL_LENGTH)):
            raise other_aggregates()
        return Numbers(read.whole, read.double, read.is_double)

    def _result(
        self, batch: FlatRecords, progress: _Batch, stopped: int = windows_kernel.DONE, newest: int = MAX_TIMESTAMP
    ) -> StepResult:
        """Build the tables of the batch, then settle the batch."""
        outcome, before = progress.outcome, self.stream_time
        emissions = tables.emissions(self._shell.state, outcome, _chunked(progress.values))
        state, touched = self._shell.state, outcome.touched[: outcome.tally[common.TOUCHED]]
        changed = net_changes(state.windows.status, touched)
        elements = outcome.touched_elements[: outcome.tally[recording.ELEMENTS_TOUCHED]]
        elements = elements[net_changes(state.elements.status, elements)]
        undo = tables.undo(self._shell.state, outcome, changed, elements, self._rules)
        self._keep_values(emissions, progress)
        changes = tables.changes(self._shell.state, outcome, changed, elements, self._rules)
        stored = self._shell.state.windows.versions.payloads
        unaccepted = late(stored, batch, outcome.unaccepted, self._rules)
        rejected = late_and_rejected.rejected(stored, batch, outcome.unaccepted, newest)
        if progress.read is not None:
            rejected = with_causes(rejected, outcome.unaccepted, progress.read)
        kernel.settle(self._shell.state, outcome)
        self._shell.stream_time = outcome.tally[common.STREAM_TIME]
        more, more_bytes = (
            int(number) for number in self._shell.numbers[[recording.ELEMENTS, recording.ELEMENTS_BYTES]]
        )
        stop = stop_of(stopped, STOP_REASONS, batch, outcome.tally[common.NEXT_ROW])
        return StepResult(
            emissions=emissions,
            late=unaccepted,
            rejected=rejected,
            changes=changes,
            undo=undo,
            counts=measures.counts(self._shell.state.windows.order, outcome, more, more_bytes),
            stream_time=self.stream_time,
            stopped_at=stop.offset,
            stopped_by=stop.limit,
            measures=measures.measures(self._shell.state.numbers, outcome, self._config, recording.CAUSES),
            passage=measures.passage(
                before,
                batch._replace(timestamp=progress.advances_to),
                outcome,
                emissions["window_end"].to_numpy(),
                self._rules,
            ),
        )

    def _keep_values(self, emissions: pa.Table, progress: _Batch) -> None:
        """Store the last value of each window that fired and is still held."""
        fired = progress.outcome.slot[: emissions.num_rows]
        _, from_end = np.unique(fired[::-1], return_index=True)
        last = np.sort(len(fired) - 1 - from_end)
        last = last[self._shell.state.windows.order.position[fired[last]] >= 0]
        for rows in emissions.select(list(_ROW)).take(last).to_batches():
            whole, kept = flat_records(columns.records_of(rows)), fired[last[: len(rows)]]
            last = last[len(rows) :]
            self._keep_rows(whole, kept, progress.outcome)

    def _keep_rows(self, values: FlatRecords, slots_of: Array, outcome: Outcome) -> None:
        run(
            lambda: kernel.keep_values(self._shell.state, values, slots_of, outcome),
            lambda signal: self._make_room(signal, int(outcome.tally[common.NEEDED])),
        )


class _Changelog(NamedTuple):
    """Changelog rows for the kernels: keys and values, the rows as elements, and what else they say."""

    whole: FlatRecords
    rows: Rows
    changes: replay.Changes


class _Batch:
    """A batch in progress: its clock, what the kernel recorded, the values of the rounds, and the least T per row.

    `read`: the fields of its records, if a function merges them.
    """

    def __init__(self, clock_ms: int | None, outcome: Outcome) -> None:
        self.clock_ms = clock_ms
        self.outcome = outcome
        self.values: list[pa.Array] = []
        self.read: Decoded | None = None
        self.advances_to: Array = np.empty(0, np.int64)


_TOUCHED = (common.TOUCHED, recording.ELEMENTS_TOUCHED)
_ROW = ("key", "value", "headers", "timestamp", "offset")


def _frozen(advances_to: Array) -> Array:
    """Return a read-only view, as timestamps are, so that the kernel is compiled only once."""
    view = advances_to.view()
    view.flags.writeable = False
    return view


def _coded(codes: Array) -> Array:
    """Return the codes of `numbers` as the codes of `late_and_rejected`."""
    return np.where(codes > 0, late_and_rejected.NO_NUMBER - 1 + codes, 0)


def _values_of(batch: FlatRecords) -> FlatRecords:
    """Return the records' values alone, which are what an element stores."""
    none = np.zeros(len(batch.offset), np.int64)
    return batch._replace(key_length=none, headers_length=none)


def _zeros(rows: pa.RecordBatch) -> Array:
    return np.zeros(rows.num_rows, np.int64)


def _numbers(rows: pa.RecordBatch, name: str) -> Array:
    return columns.int_column(rows.column(name))


def _chunked(parts: list[pa.Array]) -> pa.ChunkedArray:
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array(chunks, pa.binary())


def _with_nulls(values: pa.Array | pa.ChunkedArray, is_fired: Array) -> pa.Array | pa.ChunkedArray:
    """Return the values of the emissions that windows fired, and null for each of the others."""
    if is_fired.all():
        return values
    at = np.cumsum(is_fired) - 1
    return values.take(pa.array(at, mask=~is_fired))


def _with_emissions(outcome: Outcome, room: int) -> Outcome:
    """Return the outcome with more room for emissions."""
    used = int(outcome.tally[common.EMITTED_COUNT])
    return outcome._replace(
        slot=longer(outcome.slot, room, used),
        cause=longer(outcome.cause, room, used),
        emitted_after=longer(outcome.emitted_after, room, used),
        start=longer(outcome.start, room, used),
        end=longer(outcome.end, room, used),
        timestamp=longer(outcome.timestamp, room, used),
        offset=longer(outcome.offset, room, used),
        stream_time=longer(outcome.stream_time, room, used),
        ends=longer(outcome.ends, room, used),
    )


def _with_touched(outcome: Outcome, slots: int, elements: int) -> Outcome:
    """Return the outcome with room for every slot to be touched."""
    used, used_elements = (int(outcome.tally[name]) for name in _TOUCHED)
    return outcome._replace(
        touched=longer(outcome.touched, slots, used),
        before=recording.Before(*(longer(column, slots, used) for column in outcome.before)),
        touched_elements=longer(outcome.touched_elements, elements, used_elements),
    )
