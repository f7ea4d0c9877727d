"""One partition's suppression buffer over the arrays of a Storage.

The module wraps the kernels of `step`: it maps the arrays, grows them when a kernel needs room, and turns the kernel's
outcome into Arrow tables. The fields of a slot lie side by side in memory: with millions of slots each cache line and
each page counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIMESTAMP, advanced
from tidegate.contracts.flow import Passage, later
from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Records
from tidegate.kernels import columns, time_buffer
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records
from tidegate.kernels.touched import net_buffer_changes
from tidegate.operators import late_and_rejected
from tidegate.operators.keys import keys_of
from tidegate.operators.options.bounds import EagerBuffer, StrictBuffer
from tidegate.operators.shell import BUFFER_ARRAYS, Header, Shell, blocks_of, buffer_of, deletions, run, settle, stop_of
from tidegate.operators.suppression import measures, oldest, tables
from tidegate.operators.suppression import step as kernel
from tidegate.operators.suppression.config import SuppressionRules, TimeLimit
from tidegate.operators.suppression.integrity import find_damage

STREAM_TIME, OPENED, BYTES_OF, WINDOWED = range(kernel.CLOSED)
HALF_LINE = 32

_FINDING_LONGS, _FINDING_INTS = ("fingerprint", "arrival"), ("row", "size", "block", "key_length")
_RECORD_LONGS, _RECORD_INTS = ("timestamp", "offset", "checksum"), ("value_length", "headers_length")

LAYOUT = Layout(
    kind="suppression",
    version=7,
    arrays=(
        ArraySpec("numbers", "int64", "fixed", kernel.NUMBERS),
        ArraySpec("oldest", "int64", "fixed", oldest.NUMBERS),
        *BUFFER_ARRAYS,
        ArraySpec("finding", "int64", "slots", HALF_LINE // 8),
        ArraySpec("record", "int64", "slots", HALF_LINE // 8),
        ArraySpec("index", "int32", "index"),
        SEED,
        ArraySpec("arena", "uint8", "arena"),
    ),
    capacity={"fixed": 1, "slots": 1024, "index": 2048, "arena": 65536},
)

_FINDING = np.dtype([*((name, "i8") for name in _FINDING_LONGS), *((name, "i4") for name in _FINDING_INTS)])
_RECORD = np.dtype([*((name, "i8") for name in _RECORD_LONGS), *((name, "i4") for name in _RECORD_INTS)])
"""The fields of a slot: half a cache line for finding the slot, and half for the record that it holds.

Heap positions are in an array of their own: the heap changes those of many slots whose other fields are not read.
"""

_STOP_LIMITS = {kernel.FULL_KEYS: "buffer.max_keys", kernel.FULL_BYTES: "buffer.max_bytes"}
_NO_RECORDS = flat_records(Records.from_rows([]))


def rules_of(config: SuppressionRules) -> kernel.Rules:
    """Return the configuration as numbers for the kernels."""
    emit = config.buffer if isinstance(config.buffer, EagerBuffer) else None
    strict = config.buffer if isinstance(config.buffer, StrictBuffer) else None
    stop = strict if strict and strict.when_full == "shut_down" else None
    return kernel.Rules(
        time_limit=_time_limit(config),
        evict_keys=_bound(emit.max_keys if emit else None),
        evict_bytes=_bound(emit.max_bytes if emit else None),
        stop_keys=_bound(stop.max_keys if stop else None),
        stop_bytes=_bound(stop.max_bytes if stop else None),
        last_update=config.timer == "last_update",
        bytes_of_record=config.bytes_of == "record",
        max_lateness=-1 if config.max_lateness is None else config.max_lateness,
        closes=config.until == "window_close",
    )


def _time_limit(config: SuppressionRules) -> int:
    if config.until == "window_close":
        return config.grace or 0
    return config.until.time_limit if isinstance(config.until, TimeLimit) else -1


def _bound(bound: int | None) -> int:
    return kernel.MAX if bound is None else bound


def state_of(arrays: Mapping[str, Array]) -> kernel.State:
    """Return the storage's arrays as the kernels take them."""
    finding, record = arrays["finding"].view(_FINDING), arrays["record"].view(_RECORD)
    stored = (record[name] for name in ("value_length", "headers_length", "timestamp", "offset", "checksum"))
    return kernel.State(
        buffer_of(arrays, finding["arrival"], finding["size"]),
        slots.SlotPool(arrays["pool_numbers"], finding["arrival"]),
        Payloads(blocks_of(arrays), finding["block"], finding["key_length"], *stored),
        Index(arrays["index"], arrays["seed"]),
        finding["fingerprint"],
        finding["row"],
        arrays["numbers"],
        arrays["oldest"],
    )


def damage_of(arrays: Mapping[str, Array], config: SuppressionRules) -> str | None:
    """Return what is damaged in the arrays of a state, or None. To be called between two batches."""
    opened, bytes_of_record, windowed = arrays["numbers"][[OPENED, BYTES_OF, WINDOWED]]
    if opened != 1 or bytes_of_record not in (0, 1) or windowed != config.windowed:
        return "its numbers are impossible"
    return find_damage(state_of(arrays), bool(bytes_of_record))


class SuppressionState:
    """The suppression state of one partition, an OperatorState."""

    def __init__(self, config: SuppressionRules, storage: Storage) -> None:
        self._config = config
        self._rules = rules_of(config)
        self._keys = keys_of(config)
        self._shell = Shell(storage, Header(STREAM_TIME, OPENED), state_of)
        self._begin()

    @property
    def stream_time(self) -> int:
        """Return the partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process a batch: apply its records and emit what is due.

        Every record is counted once, up to the one at which `shut_down` stops. The result's changelog describes all
        changes of the state.
        """
        own, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        batch, ends, missing = self._keys.keyed(own, missing, records.window)
        places = ends if self._config.timer == "window_end" else batch.timestamp
        outcome = self._outcome(len(records))
        stopped = run(
            lambda: kernel.absorb(self._shell.state, batch, places, missing, newest, self._rules, outcome),
            self._add_slots,
            ends=(kernel.DONE, *_STOP_LIMITS),
        )
        return self._result(batch, outcome, own, newest, stopped)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`, and emit what becomes due with cause `idle`."""
        outcome = self._outcome(0)
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        due = int(kernel.due_until(self._rules.time_limit, outcome.tally[kernel.STREAM_TIME]))
        kernel.evict(self._shell.state, due, kernel.IDLE, self._rules, outcome)
        return self._result(_NO_RECORDS, outcome)

    def flush(self) -> StepResult:
        """Emit everything that is held, with cause `flush`.

        With `until: window_close`, remember the windows as closed until their grace has passed.
        """
        outcome = self._outcome(0)
        if not self._rules.closes:
            kernel.evict(self._shell.state, kernel.MAX, kernel.FLUSH, self._rules, outcome)
            return self._result(_NO_RECORDS, outcome)
        held = time_buffer.held_in_order(self._shell.state.time)
        windows = held[self._shell.state.time.arrival[held] >= 0]
        keys = columns.keys_of(self._shell.state.payloads, windows)
        kernel.close(self._shell.state, windows, keys, self._rules, outcome)
        return self._result(keys, outcome)

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, of which the latest of a key comes last, and set stream time to `stream_time`."""
        self._shell.restore(rows, stream_time, self._replay)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds an equal state, in emission order."""
        held = time_buffer.held_in_order(self._shell.state.time)
        return self._keys.with_record_keys(tables.changes(self._shell.state, _NO_RECORDS, held))

    def _begin(self) -> None:
        """Initialize a new storage; in an old one check the kind of keys, and recount bytes if `bytes_of` changed."""
        numbers = self._shell.numbers
        if self._shell.initialize_keyed(WINDOWED, self._config.windowed):
            oldest.begin(self._shell.state.oldest)
        if numbers[BYTES_OF] != self._rules.bytes_of_record:
            kernel.recount(self._shell.state, self._rules)
            numbers[BYTES_OF] = self._rules.bytes_of_record

    def _outcome(self, records: int) -> kernel.Outcome:
        """Return an outcome with room for all effects of so many records; pages that stay unwritten take no memory."""
        numbers = self._shell.state.time.numbers
        held = int(numbers[time_buffer.HELD])
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[kernel.STREAM_TIME] = self.stream_time
        tally[kernel.OVERTIME_MIN] = kernel.MAX
        tally[kernel.HELD_MAX], tally[kernel.HELD_BYTES_MAX] = self._in_buffer()
        return kernel.Outcome(
            emitted=np.empty(held + records, np.int64),
            cause=np.empty(held + records, np.int8),
            emitted_after=np.empty(held + records, np.int64),
            emitted_place=np.empty(held + records, np.int64),
            touched=np.empty(held + records, np.int32),
            place_before=np.empty(held + records, np.int64),
            arrival_before=np.empty(held + records, np.int64),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def oldest(self) -> int:
        """Return a time before which nothing that is held has its timestamp; MAX_TIMESTAMP if nothing is held."""
        state = self._shell.state
        return oldest.look(state.oldest, state.time, state.payloads, int(state.pool.numbers[slots.USED]))

    def _in_buffer(self) -> tuple[int, int]:
        """Return the number of records held, without closed windows, and their bytes."""
        held, held_bytes = (int(number) for number in self._shell.state.time.numbers)
        return held - int(self._shell.numbers[kernel.CLOSED]), held_bytes

    def _add_slots(self, _signal: int) -> None:
        self._shell.add_indexed_slots("slots", kernel.reindex)

    def _replay(self, rows: pa.RecordBatch) -> None:
        batch = self._keys.from_changelog(flat_records(columns.records_of(rows)), rows)
        deleted = deletions(rows)
        places, arrivals = (columns.int_column(rows.column(field.name)) for field in tables.PLACE_COLUMNS)
        outcome = self._outcome(len(rows))
        run(
            lambda: kernel.replay(self._shell.state, batch, deleted, places, arrivals, self._rules, outcome),
            self._add_slots,
        )
        self._settle(batch, outcome)

    def _result(
        self,
        batch: FlatRecords,
        outcome: kernel.Outcome,
        own: FlatRecords = _NO_RECORDS,
        newest: int = MAX_TIMESTAMP,
        stopped: int = kernel.DONE,
    ) -> StepResult:
        """Return the outcome as tables, and settle the batch. `own`: the records under their own keys."""
        state, keys, unaccepted, before = self._shell.state, self._keys, outcome.unaccepted, self.stream_time
        payloads = state.payloads
        changed = net_buffer_changes(state.time, payloads, outcome.touched[: outcome.tally[kernel.TOUCHED]])
        if self._rules.closes:
            kernel.forget_tombstones(state, batch, outcome)
        emissions = keys.with_record_keys(tables.emissions(state, batch, outcome))
        late = late_and_rejected.late(payloads, own, unaccepted, *self._lateness())
        rejected = late_and_rejected.rejected(payloads, own, unaccepted, newest)
        changes = tables.changes(state, batch, outcome.touched[changed])
        undo = tables.undo(state, batch, outcome, changed, changes["key"])
        self._settle(batch, outcome)
        self._shell.stream_time = outcome.tally[kernel.STREAM_TIME]
        stop = stop_of(stopped, _STOP_LIMITS, batch, outcome.tally[kernel.NEXT_ROW])
        held, held_bytes = (int(number) for number in self._shell.state.time.numbers)
        return StepResult(
            emissions=emissions,
            late=late,
            rejected=rejected,
            changes=keys.with_record_keys(changes),
            undo=keys.with_record_keys(undo),
            counts=measures.counts(outcome, held, held_bytes),
            stream_time=self.stream_time,
            stopped_at=stop.offset,
            stopped_by=stop.limit,
            measures=measures.measures(outcome, self._config, *self._in_buffer()),
            passage=self._passage(before, batch, outcome),
        )

    def _passage(self, before: int, batch: FlatRecords, outcome: kernel.Outcome) -> Passage:
        """Return how the batch moved stream time, and when its results left."""
        emitted, times = outcome.tally[kernel.EMITTED], (before, self.stream_time)
        found = late_and_rejected.passage(
            times, batch, outcome.tally[kernel.NEXT_ROW], outcome.unaccepted, outcome.emitted_after[:emitted]
        )
        if self._rules.time_limit < 0:
            return found
        return found._replace(reached=later(outcome.emitted_place[:emitted] - 1, self._rules.time_limit))

    def _lateness(self) -> tuple[int, str]:
        """Return the largest lateness in ms that is not late, and the cause that is written for late records."""
        if self._rules.closes:
            return self._rules.time_limit, "its window is closed"
        return self._rules.max_lateness, "older than max_lateness"

    def _settle(self, batch: FlatRecords, outcome: kernel.Outcome) -> None:
        """Store the payloads of held records, and drop those of the others. Build the batch's tables before."""
        settle(self._shell, kernel.settle, batch, outcome, outcome.tally[kernel.SETTLED :])
