"""One partition's remembered first records over the arrays of a Storage.

The module wraps the kernels of `step`: it maps the arrays, grows them when a kernel needs room, and turns the kernel's
outcome into Arrow tables. What finds a duplicate lies side by side in half a cache line.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import MAX_TIMESTAMP, advanced
from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import NULL_LENGTH, Records
from tidegate.kernels import columns, time_buffer
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records, record_length
from tidegate.operators import late_and_rejected
from tidegate.operators.deduplicate import measures, tables
from tidegate.operators.deduplicate import step as kernel
from tidegate.operators.deduplicate.config import FOREVER, DeduplicateRules
from tidegate.operators.deduplicate.integrity import find_damage
from tidegate.operators.keys import keys_of
from tidegate.operators.shell import Header, Shell, deletions, run, stop_of

_FINDING = np.dtype(
    [("fingerprint", "i8"), ("timestamp", "i8"), ("offset", "i8"), ("block", "i4"), ("key_length", "i4")]
)
_STORED = np.dtype([("check", "i8"), ("value_length", "i4"), ("headers_length", "i4")])

LAYOUT = Layout(
    kind="deduplicate",
    version=1,
    arrays=(
        ArraySpec("numbers", "int64", "fixed", kernel.NUMBERS),
        ArraySpec("time_numbers", "int64", "fixed", time_buffer.NUMBERS),
        ArraySpec("pool_numbers", "int64", "fixed", slots.NUMBERS),
        ArraySpec("arena_numbers", "int64", "fixed", arena.NUMBERS),
        ArraySpec("position", "int32", "slots"),
        ArraySpec("heap", "int32", "slots"),
        ArraySpec("place", "int64", "slots"),
        ArraySpec("finding", "int64", "slots", _FINDING.itemsize // 8),
        ArraySpec("stored", "int64", "slots", _STORED.itemsize // 8),
        ArraySpec("index", "int32", "index"),
        SEED,
        ArraySpec("arena", "uint8", "arena"),
    ),
    capacity={"fixed": 1, "slots": 1024, "index": 2048, "arena": 65536},
)

_STOP_LIMITS = {kernel.FULL_KEYS: "buffer.max_keys", kernel.FULL_BYTES: "buffer.max_bytes"}
_NO_RECORDS = flat_records(Records.from_rows([]))


def rules_of(config: DeduplicateRules) -> kernel.Rules:
    """Return the configuration as numbers for the kernels."""
    stop = config.buffer if config.buffer and config.buffer.when_full == "shut_down" else None
    keys, size = (None, None) if stop is None else (stop.max_keys, stop.max_bytes)
    return kernel.Rules(
        within=kernel.MAX if config.within == FOREVER else config.within_ms,
        grace=-1 if config.grace is None else config.grace,
        stop_keys=kernel.MAX if keys is None else keys,
        stop_bytes=kernel.MAX if size is None else size,
    )


def state_of(arrays: Mapping[str, Array]) -> kernel.State:
    """Return the storage's arrays as the kernels take them.

    The order's arrival is the offset, its size the length of the key; a free slot has the next free one as its offset.
    """
    finding, stored = arrays["finding"].view(_FINDING), arrays["stored"].view(_STORED)
    blocks = arena.Arena(arrays["arena"], arrays["arena"].view(np.int64), arrays["arena_numbers"])
    lengths = finding["key_length"], stored["value_length"], stored["headers_length"]
    order = arrays["heap"], arrays["place"], arrays["position"]
    return kernel.State(
        time_buffer.TimeBuffer(arrays["time_numbers"], *order, finding["offset"], finding["key_length"]),
        slots.SlotPool(arrays["pool_numbers"], finding["offset"]),
        Payloads(blocks, finding["block"], *lengths, finding["timestamp"], finding["offset"], stored["check"]),
        Index(arrays["index"], arrays["seed"]),
        finding["fingerprint"],
        arrays["numbers"],
    )


def damage_of(arrays: Mapping[str, Array], config: DeduplicateRules) -> str | None:
    """Return what is damaged in the arrays of a state, or None. To be called between two batches."""
    opened, windowed = arrays["numbers"][[kernel.OPENED, kernel.WINDOWED]]
    if opened != 1 or windowed != config.windowed:
        return "its numbers are impossible"
    return find_damage(state_of(arrays))


class DeduplicateState:
    """The first records that one partition remembers, an OperatorState."""

    def __init__(self, config: DeduplicateRules, storage: Storage) -> None:
        self._config = config
        self._rules = rules_of(config)
        self._keys = keys_of(config)
        self._shell = Shell(storage, Header(kernel.T, kernel.OPENED), state_of)
        self._shell.initialize_keyed(kernel.WINDOWED, config.windowed)

    @property
    def stream_time(self) -> int:
        """Return the partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process a batch: emit the first records, drop their duplicates, forget what has expired.

        Every record is counted once, up to the one at which `shut_down` stops.
        """
        own, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        batch, _, missing = self._keys.keyed(own, missing, records.window)
        keys, outcome = _keys_alone(batch), self._outcome(len(records))
        signal = run(
            lambda: kernel.absorb(self._shell.state, batch, keys, missing, newest, self._rules, outcome),
            lambda lack: self._make_room(lack, keys, outcome),
            ends=(kernel.DONE, *_STOP_LIMITS),
        )
        return self._result(batch, outcome, own, newest, signal)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`, and forget what expires by it. Nothing is emitted."""
        outcome = self._outcome(0)
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        kernel.expire_until(self._shell.state, self._rules, outcome)
        return self._result(_NO_RECORDS, outcome)

    def flush(self) -> StepResult:
        """Return an empty result: first records are emitted at once."""
        return self._result(_NO_RECORDS, self._outcome(0))

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, of which the latest of a slot comes last, and set stream time to `stream_time`."""
        self._shell.restore(rows, stream_time, self._replay)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds an equal state, in the order of expiry."""
        held = time_buffer.held_in_order(self._shell.state.time)
        rows = tables.changes(self._shell.state, _NO_RECORDS, held, np.zeros(len(held), np.bool_))
        return self._keys.with_record_keys(rows)

    def _outcome(self, records: int) -> kernel.Outcome:
        """Return an outcome with room for all effects of so many records; pages that stay unwritten take no memory."""
        held, held_bytes = self._held()
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[[kernel.STREAM_TIME, kernel.HELD_MAX, kernel.HELD_BYTES_MAX]] = self.stream_time, held, held_bytes
        return kernel.Outcome(
            emitted=np.empty(records, np.int64),
            opened=np.empty(records, np.int32),
            expired=np.empty(held + records, np.int32),
            unaccepted=late_and_rejected.none_yet(records),
            tally=tally,
        )

    def _held(self) -> tuple[int, int]:
        """Return how many first records are remembered, and the bytes of their keys."""
        held, held_bytes = (int(number) for number in self._shell.state.time.numbers)
        return held, held_bytes

    def _make_room(self, signal: int, keys: FlatRecords, outcome: kernel.Outcome) -> None:
        """Add what the kernel needs for the key of the row at which it stopped: slots, or room for the key."""
        if signal == kernel.NEEDS_SLOT:
            self._shell.add_indexed_slots("slots", kernel.reindex)
            return
        length = int(record_length(keys, outcome.tally[kernel.NEXT_ROW]))
        self._shell.make_room_for(self._shell.state.payloads, self._shell.state.pool, length)

    def _replay(self, rows: pa.RecordBatch) -> None:
        batch = _keys_alone(self._keys.from_changelog(flat_records(columns.records_of(rows)), rows))
        deleted, outcome = deletions(rows), self._outcome(0)
        run(
            lambda: kernel.replay(self._shell.state, batch, deleted, outcome.tally),
            lambda lack: self._make_room(lack, batch, outcome),
        )

    def _result(
        self,
        batch: FlatRecords,
        outcome: kernel.Outcome,
        own: FlatRecords = _NO_RECORDS,
        newest: int = MAX_TIMESTAMP,
        signal: int = kernel.DONE,
    ) -> StepResult:
        """Return the outcome as tables, and free what has expired. `own`: the records under their own keys."""
        state, unaccepted, tally, before = self._shell.state, outcome.unaccepted, outcome.tally, self.stream_time
        slots_changed, gone = tables.net_changes(state, outcome, int(batch.offset[0]) if len(batch.offset) else 2**62)
        emissions = tables.emissions(state, batch, outcome.emitted[: tally[kernel.EMITTED]])
        changes, undo = (tables.changes(state, batch, slots_changed, is_gone) for is_gone in (gone, ~gone))
        late = late_and_rejected.late(state.payloads, own, unaccepted, self._rules.grace, "older than grace")
        rejected = late_and_rejected.rejected(state.payloads, own, unaccepted, newest)
        kernel.release(state, outcome.expired[: tally[kernel.EXPIRED]])
        self._shell.stream_time = tally[kernel.STREAM_TIME]
        stop = stop_of(signal, _STOP_LIMITS, batch, tally[kernel.NEXT_ROW])
        return StepResult(
            emissions=self._keys.with_record_keys(emissions),
            late=late,
            rejected=rejected,
            changes=self._keys.with_record_keys(changes),
            undo=self._keys.with_record_keys(undo),
            counts=measures.counts(outcome, *self._held()),
            stream_time=self.stream_time,
            stopped_at=stop.offset,
            stopped_by=stop.limit,
            measures=measures.measures(outcome, self._config, *self._held()),
            passage=late_and_rejected.passage(
                (before, self.stream_time),
                batch,
                tally[kernel.NEXT_ROW],
                unaccepted,
                outcome.emitted[: tally[kernel.EMITTED]],
            ),
        )


def _keys_alone(batch: FlatRecords) -> FlatRecords:
    """Return the batch without values and headers."""
    values, headers = np.full_like(batch.value_length, NULL_LENGTH), np.zeros_like(batch.headers_length)
    for lengths in (values, headers):
        lengths.flags.writeable = False
    return batch._replace(value_length=values, headers_length=headers)
