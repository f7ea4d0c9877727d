"""The windows of one partition and their elements, over the arrays of a Storage.

This is the shell around the kernels in `step`: it maps the arrays and makes room when a kernel asks for it. It computes
the values of windows that fired, calls the functions that remove elements, and turns what the kernel recorded into
Arrow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zlib import crc32

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIMESTAMP, NO_STREAM_TIME, advanced
from tidegate.contracts.operator import Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import NULL_LENGTH, Records
from tidegate.kernels import columns, payloads
from tidegate.kernels import windows as windows_kernel
from tidegate.kernels.memory import growth, slots
from tidegate.kernels.payloads import FlatRecords, flat_records
from tidegate.kernels.time_buffer import HELD
from tidegate.operators import acceptance
from tidegate.operators.json_values import numbers
from tidegate.operators.windowed_aggregation import measures
from tidegate.operators.windowed_aggregation import step as common
from tidegate.operators.windowed_aggregation.aggregates import Numbers, Plan
from tidegate.operators.windowed_aggregation.config import DeltaEvictor, JsonField, WindowedAggregationRules
from tidegate.operators.windowed_aggregation.elements import results, store, tables
from tidegate.operators.windowed_aggregation.elements import step as kernel
from tidegate.operators.windowed_aggregation.elements.evictors import evictor_of
from tidegate.operators.windowed_aggregation.elements.functions import (
    Context,
    Fired,
    Functions,
    Windows,
)
from tidegate.operators.windowed_aggregation.elements.integrity import find_damage
from tidegate.operators.windowed_aggregation.elements.results import Lists
from tidegate.operators.windowed_aggregation.elements.step import (
    Outcome,
    Rows,
    State,
    Trigger,
)
from tidegate.operators.windowed_aggregation.spans import (
    MAX,
    PENDING,
    Rules,
    rules_of,
)
from tidegate.operators.windowed_aggregation.state import (
    STOP_REASONS,
    keys_of,
    longer,
    other_aggregates,
    plan_of,
)
from tidegate.operators.windowed_aggregation.tables import late

RULES = slice(kernel.NUMBERS, kernel.NUMBERS + len(Rules._fields))
STREAM_TIME, READ, OPENED = range(RULES.stop, RULES.stop + 3)
NUMBERS = RULES.stop + 3
"""READ: a hash of the fields whose numbers the elements have."""

LISTS = 4
"""Room for listed elements between two rounds, as a multiple of the elements that there is room for."""

_NO_RECORDS = Records.from_rows([])
_ENDS = (common.FULL_KEYS, common.FULL_BYTES, windows_kernel.DONE)


def read_of(config: WindowedAggregationRules) -> tuple[Plan, tuple[str | None, ...], int]:
    """Return the plan of the numeric aggregates, the fields that are read, and which of them the evictor compares.

    None as a field: the value itself.
    """
    plan, fields = plan_of(config.aggregate)
    evictor = config.evictor
    if not isinstance(evictor, DeltaEvictor) or isinstance(evictor.delta.distance, str):
        return plan, fields, 0
    distance = evictor.delta.distance
    field = distance.field if isinstance(distance, JsonField) else None
    fields = fields if field in fields else (*fields, field)
    return plan, fields, fields.index(field)


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


def _hash(fields: tuple[str | None, ...]) -> int:
    return crc32(repr(fields).encode())


class ElementsState:
    """The state of a windowed aggregation with elements, for one partition (an OperatorState)."""

    def __init__(self, config: WindowedAggregationRules, functions: Functions, storage: Storage) -> None:
        self._config = config
        self._functions = functions
        self._rules = rules_of(config)
        self._plan, self._fields, number = read_of(config)
        self._trigger = Trigger(config.every or 1, evictor_of(config, number))
        self._storage = storage
        self._map()
        self._begin()

    @property
    def stream_time(self) -> int:
        """Return T of the partition; NO_STREAM_TIME before the first accepted record."""
        return int(self._numbers[STREAM_TIME])

    def step(self, records: Records, clock_ms: int, advances_to: Array | None = None) -> StepResult:
        """Process the records up to a stop, and count each of them once.

        The state is then what the changelog describes. `advances_to`: the least T after each record, so that time can
        come from elsewhere; default: the record's timestamp.
        """
        batch, missing, newest = acceptance.with_timestamps(records, self._config, clock_ms)
        rows = self._rows(records, batch, missing, newest, advances_to)
        run = _Run(clock_ms, self._outcome(len(records)))
        stopped = self._run(lambda: kernel.absorb(self._state, rows, self._rules, self._trigger, run.outcome), run)
        return self._result(batch, run, stopped, newest)

    def advance(self, stream_time: int) -> StepResult:
        """Advance T to at least `stream_time`; emit what becomes due with cause `idle`."""
        run = _Run(None, self._outcome())
        run.outcome.tally[common.STREAM_TIME] = advanced(self.stream_time, stream_time)
        self._run(lambda: kernel.advance(self._state, self._rules, self._trigger, run.outcome), run)
        return self._result(flat_records(_NO_RECORDS), run)

    def flush(self) -> StepResult:
        """Emit every pending result with cause `flush`; with final results, close these windows."""
        held = self._held()
        pending = held[self._state.windows.phase[held] == PENDING]
        run = _Run(None, self._outcome())
        self._run(lambda: kernel.flush(self._state, pending, self._rules, self._trigger, run.outcome), run)
        return self._result(flat_records(_NO_RECORDS), run)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply the changelog rows, of which the latest of a slot comes last, and set T to `stream_time`."""
        for rows_of_batch in rows.to_batches():
            if rows_of_batch.num_rows:
                self._replay(rows_of_batch)
        self._numbers[STREAM_TIME] = stream_time

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` makes an equal state.

        Windows come first, by end and arrival, then elements in the order of their windows.
        """
        held, elements = self._held(), self._state.elements
        rank = np.zeros(len(self._state.start), np.int64)
        rank[held] = np.arange(len(held))
        used = int(elements.pool.numbers[slots.USED])
        listed = np.flatnonzero(elements.status[:used] == store.STORED)
        order = np.lexsort((elements.payloads.offset[listed], rank[elements.window[listed]]))
        return tables.changes(self._state, held, listed[order])

    def _held(self) -> Array:
        """Return the slots of all windows, by end, arrival and start."""
        order = self._state.windows.order
        held = order.heap[: order.numbers[HELD]].astype(np.int64)
        return held[np.lexsort((self._state.start[held], order.arrival[held], self._state.end[held]))]

    def _map(self) -> None:
        """Map the storage's current arrays for the kernels."""
        arrays = self._storage.arrays()
        self._numbers = arrays["numbers"]
        self._state = state_of(arrays)

    def _begin(self) -> None:
        """Initialize a new storage; in an old one, re-order the windows if the rules changed.

        Raises UserError if its elements have the numbers of other fields.
        """
        if not self._numbers[OPENED]:
            self._numbers[OPENED] = 1
            self._numbers[STREAM_TIME] = NO_STREAM_TIME
            self._numbers[READ] = _hash(self._fields)
        if self._numbers[READ] != _hash(self._fields):
            raise other_aggregates()
        if not np.array_equal(self._numbers[RULES], self._rules):
            self._numbers[RULES] = self._rules
            kernel.reorder(self._state, self._rules)

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

    def _missing_parts(self, records: Records) -> Array:
        given = self._config.aggregate
        parts = [part for part in (given.first, given.last, given.collect) if part is not None]
        fields = dict.fromkeys(part.field if isinstance(part, JsonField) else None for part in parts)
        return numbers.missing_parts(records, tuple(sorted(fields, key=lambda field: field is not None)))

    def _outcome(self, records: int = 0) -> Outcome:
        """Return an empty outcome with room for the least that so many records cause.

        Reserved memory takes no space until it is written to.
        """
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[common.STREAM_TIME] = self.stream_time
        tally[common.NEXT_START] = common.NEXT_RECORD
        tally[common.OVERTIME_MIN] = MAX
        tally[[common.OPEN_MAX, common.OPEN_BYTES_MAX]] = self._numbers[: common.CHECKSUM]
        room, capacity = 2 * records + 1, self._storage.capacity()
        return Outcome(
            slot=np.empty(room, np.int64),
            cause=np.empty(room, np.int8),
            timestamp=np.empty(room, np.int64),
            offset=np.empty(room, np.int64),
            stream_time=np.empty(room, np.int64),
            ends=np.empty(room, np.int64),
            listed=np.empty(LISTS * capacity["elements"], np.int32),
            touched=np.empty(capacity["slots"], np.int32),
            before=kernel.Before(
                since=np.empty(capacity["slots"], np.int64),
                phase=np.empty(capacity["slots"], np.int32),
                timestamp=np.empty(capacity["slots"], np.int64),
                offset=np.empty(capacity["slots"], np.int64),
            ),
            touched_elements=np.empty(capacity["elements"], np.int32),
            unaccepted=acceptance.none_yet(records),
            tally=tally,
        )

    def _run(self, work: Callable[[], int], run: _Run) -> int:
        """Run the kernel until it is done or stops, and return its last signal.

        Each time it asks for room or for a round, serve it and call it again.
        """
        while (signal := work()) not in _ENDS:
            self._serve(signal, run)
        self._round(run)
        return signal

    def _serve(self, signal: int, run: _Run) -> None:
        """Do what the kernel asked for, so that it can be called again."""
        tally = run.outcome.tally
        wanted = int(tally[common.NEEDED])
        if signal == common.NEEDS_EMISSIONS:
            run.outcome = _with_emissions(run.outcome, 2 * len(run.outcome.slot))
        elif signal == kernel.NEEDS_ROUND and tally[common.EMITTED_COUNT] > tally[kernel.ROUND]:
            self._round(run)
        elif signal == kernel.NEEDS_ROUND:
            run.outcome = run.outcome._replace(listed=np.empty(2 * wanted, np.int32))
        else:
            self._make_room(signal, wanted)
            run.outcome = _with_touched(run.outcome, self._storage.capacity())

    def _make_room(self, signal: int, wanted: int) -> None:
        capacity = self._storage.capacity()
        if signal == kernel.NEEDS_ELEMENT:
            self._storage.grow(growth.more_slots(capacity, "elements"))
        elif signal == kernel.NEEDS_VALUES:
            stored = self._state.elements.payloads
            larger = growth.arena_capacity(stored.arena.numbers, wanted, capacity["values"])
            if larger is None:
                spare = np.empty(len(stored.arena.words), np.int64)
                payloads.repack(stored, int(self._state.elements.pool.numbers[slots.USED]), spare)
            else:
                self._storage.grow({"values": larger})
        else:
            windows_kernel.make_room(self._storage, self._state.windows, signal, wanted)
        self._map()

    def _round(self, run: _Run) -> None:
        """Compute the values of windows that fired since the last round, and remove what functions choose."""
        outcome = run.outcome
        first, last = int(outcome.tally[kernel.ROUND]), int(outcome.tally[common.EMITTED_COUNT])
        if first == last:
            return
        offsets = np.concatenate([[0], outcome.ends[first:last]])
        lists = Lists(outcome.listed[: outcome.tally[kernel.LISTED]].astype(np.int64), offsets)
        fired = slice(first, last)
        lists = self._evicted(self._functions.before, lists, run, fired)
        run.values.append(self._values(lists, run, fired))
        self._evicted(self._functions.after, lists, run, fired)
        kernel.end_round(self._state, outcome)

    def _evicted(self, mask: Callable[[Fired], Array] | None, lists: Lists, run: _Run, fired: slice) -> Lists:
        """Remove the elements that the function chooses, and return the lists without them."""
        if mask is None:
            return lists
        gone = mask(self._fired(lists, run, fired))
        kernel.remove_chosen(self._state, lists.slots[gone], run.outcome)
        return lists.without(gone)

    def _values(self, lists: Lists, run: _Run, fired: slice) -> pa.Array:
        if self._functions.value is not None:
            return self._functions.value.values(self._fired(lists, run, fired))
        return results.results(self._state.elements, lists, self._plan, self._config.aggregate)

    def _fired(self, lists: Lists, run: _Run, fired: slice) -> Fired:
        """Return the windows that fired as functions get them."""
        windows, elements = run.outcome.slot[fired], self._state.elements
        keys = tables.keys(self._state, windows).combine_chunks()
        return Fired(
            values=results.values(elements, lists),
            timestamps=elements.payloads.timestamp[lists.slots],
            element_offsets=lists.offsets,
            windows=Windows(keys, self._state.start[windows], self._state.end[windows]),
            context=Context(run.outcome.stream_time[fired].copy(), run.clock_ms),
        )

    def _replay(self, rows: pa.RecordBatch) -> None:
        if "since" not in rows.schema.names:
            raise other_aggregates()
        records = columns.records_of(rows)
        whole, arrival = flat_records(records)._replace(headers_length=_zeros(rows)), _numbers(rows, "arrival")
        read = self._read_elements(records, arrival)
        changes = kernel.Changes(
            np.asarray(rows.column("op").to_numpy(zero_copy_only=False) == "delete", np.bool_),
            start=_numbers(rows, "window_start"),
            end=_numbers(rows, "window_end"),
            arrival=arrival,
            opened=_numbers(rows, "opened"),
            since=_numbers(rows, "since"),
            phase=_numbers(rows, "phase"),
        )
        elements = Rows(keys_of(whole), _values_of(whole), arrival, read, _zeros(rows).astype(np.int8), MAX_TIMESTAMP)
        run = _Run(None, self._outcome())
        self._run(lambda: kernel.replay(self._state, whole, elements, changes, self._rules, run.outcome), run)

    def _read_elements(self, records: Records, arrival: Array) -> Numbers:
        """Return the numbers of the rows that are elements. Raises UserError if one lacks a number."""
        read = numbers.read_numbers(records, self._fields)
        if np.any((read.code > 0) & (arrival != kernel.WINDOW) & (records.value_length != NULL_LENGTH)):
            raise other_aggregates()
        return Numbers(read.whole, read.double, read.is_double)

    def _result(
        self, batch: FlatRecords, run: _Run, stopped: int = windows_kernel.DONE, newest: int = MAX_TIMESTAMP
    ) -> StepResult:
        """Build the tables of the batch from the run, then settle the batch."""
        outcome = run.outcome
        emissions = tables.emissions(self._state, outcome, _chunked(run.values))
        changed, elements = (np.empty(outcome.tally[name], np.int32) for name in _TOUCHED)
        changed = changed[: kernel.net_changes(self._state, outcome, changed)]
        elements = elements[: kernel.net_elements(self._state, outcome, elements)]
        undo = tables.undo(self._state, outcome, changed, elements)
        self._keep_values(emissions, run)
        changes = tables.changes(self._state, outcome.touched[changed], elements)
        stored = self._state.windows.versions.payloads
        unaccepted = late(stored, batch, outcome.unaccepted, self._rules)
        rejected = acceptance.rejected(stored, batch, outcome.unaccepted, newest)
        kernel.settle(self._state, outcome)
        self._numbers[STREAM_TIME] = outcome.tally[common.STREAM_TIME]
        more, more_bytes = (int(number) for number in self._numbers[[kernel.ELEMENTS, kernel.ELEMENTS_BYTES]])
        return StepResult(
            emissions=emissions,
            late=unaccepted,
            rejected=rejected,
            changes=changes,
            undo=undo,
            counts=measures.counts(self._state.windows.order, outcome, more, more_bytes),
            stream_time=self.stream_time,
            stopped_at=int(batch.offset[outcome.tally[common.NEXT_ROW]]) if stopped in STOP_REASONS else None,
            stop_reason=STOP_REASONS.get(stopped, ""),
            measures=measures.measures(self._state.numbers, outcome, self._config, kernel.CAUSES),
        )

    def _keep_values(self, emissions: pa.Table, run: _Run) -> None:
        """Store the last value of each window that fired and is still held."""
        fired = run.outcome.slot[: emissions.num_rows]
        _, from_end = np.unique(fired[::-1], return_index=True)
        last = np.sort(len(fired) - 1 - from_end)
        last = last[self._state.windows.order.position[fired[last]] >= 0]
        for rows in emissions.select(list(_ROW)).take(last).to_batches():
            whole, kept = flat_records(columns.records_of(rows)), fired[last[: len(rows)]]
            last = last[len(rows) :]
            while (signal := kernel.keep_values(self._state, whole, kept, run.outcome)) != windows_kernel.DONE:
                self._make_room(signal, int(run.outcome.tally[common.NEEDED]))


class _Run:
    """A batch in progress: its clock, what the kernel recorded, and the values of the rounds so far."""

    def __init__(self, clock_ms: int | None, outcome: Outcome) -> None:
        self.clock_ms = clock_ms
        self.outcome = outcome
        self.values: list[pa.Array] = []


_TOUCHED = (common.TOUCHED, kernel.ELEMENTS_TOUCHED)
_ROW = ("key", "value", "headers", "timestamp", "offset")


def _frozen(advances_to: Array) -> Array:
    """Return a read-only view, as timestamps are, so that the kernel is compiled only once."""
    view = advances_to.view()
    view.flags.writeable = False
    return view


def _coded(codes: Array) -> Array:
    """Return the codes of `numbers` as the codes of `acceptance`."""
    return np.where(codes > 0, acceptance.NO_NUMBER - 1 + codes, 0)


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


def _with_emissions(outcome: Outcome, room: int) -> Outcome:
    """Return the outcome with more room for emissions."""
    used = int(outcome.tally[common.EMITTED_COUNT])
    return outcome._replace(
        slot=longer(outcome.slot, room, used),
        cause=longer(outcome.cause, room, used),
        timestamp=longer(outcome.timestamp, room, used),
        offset=longer(outcome.offset, room, used),
        stream_time=longer(outcome.stream_time, room, used),
        ends=longer(outcome.ends, room, used),
    )


def _with_touched(outcome: Outcome, capacity: Mapping[str, int]) -> Outcome:
    """Return the outcome with room for every slot to be touched."""
    windows, elements = (int(outcome.tally[name]) for name in _TOUCHED)
    return outcome._replace(
        touched=longer(outcome.touched, capacity["slots"], windows),
        before=kernel.Before(*(longer(column, capacity["slots"], windows) for column in outcome.before)),
        touched_elements=longer(outcome.touched_elements, capacity["elements"], elements),
    )
