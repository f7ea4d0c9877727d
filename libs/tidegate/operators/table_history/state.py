"""One partition of a table over the arrays of a Storage.

The module wraps the kernels of `step`: it maps the arrays, grows them when a kernel needs room, and turns the kernel's
outcome into Arrow tables. The fields of a key lie side by side in memory, and so do those of a version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from tidegate.contracts.event_time import ALWAYS, MAX_TIMESTAMP, NEVER, NO_STREAM_TIME, advanced
from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, StepResult, Storage
from tidegate.contracts.records import Records, Row
from tidegate.kernels import (
    columns,
    time_buffer,
    version_chains,
)
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import arena, growth, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.payloads import FlatRecords, Payloads, flat_records
from tidegate.kernels.time_buffer import TimeBuffer
from tidegate.kernels.touched import STORED, net_changes
from tidegate.kernels.version_chains import READABLE_FROM, TIMELESS, LookupScratch, Versions
from tidegate.operators import late_and_rejected
from tidegate.operators.keys import keys_of
from tidegate.operators.result_tables import NO_EMISSIONS
from tidegate.operators.shell import Header, Shell, deletions, run
from tidegate.operators.table_history import measures, tables
from tidegate.operators.table_history import step as kernel
from tidegate.operators.table_history.config import TableHistoryRules
from tidegate.operators.table_history.integrity import find_damage
from tidegate.operators.table_history.reading import Version, get, get_range

STREAM_TIME, OPENED = kernel.NUMBERS, kernel.NUMBERS + 1
NUMBERS = kernel.NUMBERS + 2

_KEY = np.dtype(
    [("fingerprint", "i8"), ("arrival", "i8")] + [(name, "i4") for name in ("block", "first", "length", "capacity")]
)
_VERSION = np.dtype(
    [("timestamp", "i8"), ("offset", "i8")]
    + [(name, "i4") for name in ("block", "key_length", "value_length", "headers_length", "checksum", "status")]
)

LAYOUT = Layout(
    kind="table_history",
    version=2,
    arrays=(
        ArraySpec("numbers", "int64", "fixed", NUMBERS),
        ArraySpec("expiry_numbers", "int64", "fixed", time_buffer.NUMBERS),
        ArraySpec("key_numbers", "int64", "fixed", slots.NUMBERS),
        ArraySpec("pool_numbers", "int64", "fixed", slots.NUMBERS),
        ArraySpec("arena_numbers", "int64", "fixed", arena.NUMBERS),
        ArraySpec("chain_numbers", "int64", "fixed", arena.NUMBERS),
        ArraySpec("key", "int64", "keys", _KEY.itemsize // 8),
        ArraySpec("position", "int32", "keys"),
        ArraySpec("heap", "int32", "keys"),
        ArraySpec("place", "int64", "keys"),
        ArraySpec("index", "int32", "index"),
        SEED,
        ArraySpec("version", "int64", "versions", _VERSION.itemsize // 8),
        ArraySpec("chains", "uint8", "chains"),
        ArraySpec("arena", "uint8", "arena"),
    ),
    capacity={"fixed": 1, "keys": 1024, "index": 2048, "versions": 1024, "chains": 65536, "arena": 65536},
)

MAX_VERSIONS = growth.MAX_SLOTS
"""Maximum number of versions of one key."""

REPLACED_BYTES = 4096
"""Initial room, in bytes, for the records that a batch replaces."""

_NO_RECORDS = flat_records(Records.from_rows([]))


def state_of(arrays: Mapping[str, Array], reading: Array) -> kernel.State:
    """Return the storage's arrays as the kernels take them. `reading`: the `numbers` of Versions, for lookups."""
    key, version = arrays["key"].view(_KEY), arrays["version"].view(_VERSION)
    stored = Payloads(_arena(arrays, "arena"), **{name: version[name] for name in Payloads._fields[1:]})
    versions = Versions(
        numbers=reading,
        key_index=Index(arrays["index"], arrays["seed"]),
        keys=slots.SlotPool(arrays["key_numbers"], key["fingerprint"]),
        **{name: key[name] for name in ("fingerprint", "block", "first", "length", "capacity")},
        chains=_arena(arrays, "chain"),
        payloads=stored,
    )
    numbers, heap, place, position = (arrays[name] for name in ("expiry_numbers", "heap", "place", "position"))
    no_sizes = as_strided(np.zeros(1, np.int32), (len(heap),), (0,))  # one zero for all: the order of keys needs none
    expiry = TimeBuffer(numbers, heap, place, position, key["arrival"], no_sizes)
    pool = slots.SlotPool(arrays["pool_numbers"], version["offset"])
    return kernel.State(versions, pool, expiry, version["status"], arrays["numbers"])


def _arena(arrays: Mapping[str, Array], name: str) -> Arena:
    data = arrays["arena" if name == "arena" else "chains"]
    return Arena(data, data.view(np.int64), arrays[f"{name}_numbers"])


def damage_of(arrays: Mapping[str, Array], config: TableHistoryRules) -> str | None:
    """Return what is damaged in the arrays of a state, or None. To be called between two batches."""
    if arrays["numbers"][OPENED] != 1:
        return "its numbers are impossible"
    longest = 1 if config.versions == "latest" else MAX_VERSIONS
    return find_damage(state_of(arrays, np.zeros(version_chains.NUMBERS, np.int64)), longest)


class TableHistoryState:
    """The state of one partition of a table: an OperatorState, and the VersionedState in which readers look up."""

    def __init__(self, config: TableHistoryRules, storage: Storage) -> None:
        self._config = config
        self._keys = keys_of(config)
        self._retention = kernel.LATEST if config.history_retention is None else config.history_retention
        self._reading = np.zeros(version_chains.NUMBERS, np.int64)
        self._floor, self._needs = NEVER, ALWAYS
        header = Header(STREAM_TIME, OPENED)
        self._shell = Shell(storage, header, lambda arrays: state_of(arrays, self._reading))
        self._shell.initialize()
        self._set_stream_time(self.stream_time)

    @property
    def stream_time(self) -> int:
        """Return the partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return self._shell.stream_time

    def hold(self, floor: int, needs: int) -> None:
        """Keep versions that a reader may look up at `needs` or later. Those before `floor` have expired already."""
        self._floor, self._needs = floor, needs
        self._set_stream_time(self.stream_time)

    @property
    def windowed(self) -> bool:
        """Return whether windows are part of keys."""
        return self._config.windowed

    @property
    def versions(self) -> Versions:
        """Return the versions held now. Growth makes the result stale: fetch it again for each batch."""
        return self._shell.state.versions

    def get(self, key: bytes, as_of: int | None = None, *, window: tuple[int, int] | None = None) -> Version | None:
        """Return the key's version valid at `as_of` (None: the newest); None if there is none or it is a tombstone.

        `window`: the key's window (start, end), if windows are part of keys.
        """
        return get(self.versions, self._keys.key(key, window), as_of)

    def get_range(
        self,
        key: bytes,
        from_ms: int | None = None,
        to_ms: int | None = None,
        ascending: bool = False,
        *,
        window: tuple[int, int] | None = None,
    ) -> list[Version]:
        """Return the key's versions valid at some instant of [from, to], the newest first unless `ascending`."""
        return get_range(self.versions, self._keys.key(key, window), from_ms, to_ms, ascending)

    def put(self, row: Row) -> bool:
        """Apply one record, whose key must not be null, without a changelog. Return False if it is late."""
        batch = flat_records(Records.from_rows([row]))
        outcome = self._absorb(batch, np.zeros(1, np.int8), MAX_TIMESTAMP, self._outcome(1))
        self._settle(outcome)
        return bool(outcome.unaccepted.numbers[late_and_rejected.COUNT] == 0)

    def step(self, records: Records, clock_ms: int) -> StepResult:
        """Process a batch: count every record once, and return the changelog of all changes of the state."""
        own, missing, newest = late_and_rejected.with_timestamps(records, self._config, clock_ms)
        keyed = self._keys.keyed(own, missing, records.window)
        outcome = self._absorb(keyed.batch, keyed.missing, newest, self._outcome(len(records)))
        return self._result(keyed.batch, outcome, own, newest)

    def advance(self, stream_time: int, clock_ms: int = 0) -> StepResult:
        """Advance stream time to at least `stream_time`, and remove what expires by it. Nothing is emitted."""
        outcome = self._outcome(0)
        outcome.tally[kernel.STREAM_TIME] = advanced(self.stream_time, stream_time)
        self._expire(outcome)
        return self._result(_NO_RECORDS, outcome)

    def flush(self) -> StepResult:
        """Return an empty result and change nothing: a table holds nothing back."""
        return self._result(_NO_RECORDS, self._outcome(0))

    def restore(self, rows: pa.Table, stream_time: int) -> None:
        """Apply changelog rows, and set stream time. Of several rows of a version the latest comes last."""
        self._shell.restore(rows, stream_time, self._replay)
        self._set_stream_time(stream_time)

    def snapshot(self) -> pa.Table:
        """Return the rows (all `put`) from which `restore` builds an equal state, by timestamp and offset."""
        stored, used = self.versions.payloads, self._shell.state.pool.numbers[slots.USED]
        held = np.flatnonzero(self._shell.state.status[:used] == STORED)
        in_order = held[np.lexsort((stored.offset[held], stored.timestamp[held]))]
        return self._keys.with_record_keys(tables.changes(self._shell.state, _NO_RECORDS, in_order))

    def _set_stream_time(self, stream_time: int) -> None:
        """Set stream time, and the first time that readers can read under this configuration."""
        self._shell.stream_time = stream_time
        self._reading[READABLE_FROM] = self._floor_at(stream_time)
        self._reading[TIMELESS] = self._retention == kernel.LATEST

    def _floor_at(self, stream_time: int) -> int:
        """Return the floor, from which on all versions are kept: because of the retention, or for a reader."""
        if self._retention == kernel.LATEST:
            return NO_STREAM_TIME
        if stream_time == NO_STREAM_TIME:  # nothing was written, so nothing has expired by retention
            return self._floor
        # rule: table-keeps-for-readers
        return max(self._floor, min(stream_time - self._retention, self._needs))

    def _outcome(self, records: int) -> kernel.Outcome:
        """Return an outcome with room for all effects of so many records; pages that stay unwritten take no memory."""
        tally = np.zeros(kernel.TALLIES, np.int64)
        tally[kernel.STREAM_TIME] = self.stream_time
        tally[kernel.FLOOR] = self._floor_at(self.stream_time)
        room = int(self._shell.state.pool.numbers[slots.USED]) + records
        lengths_and_times = (np.empty(records, np.int64) for _ in kernel.Replaced._fields[1:])
        replaced = kernel.Replaced(np.empty(REPLACED_BYTES, np.uint8), *lengths_and_times)
        return kernel.Outcome(np.empty(room, np.int32), replaced, late_and_rejected.none_yet(records), tally)

    def _absorb(self, batch: FlatRecords, missing: Array, newest: int, outcome: kernel.Outcome) -> kernel.Outcome:
        """Apply the records and remove what expires; return the outcome, which may be an enlarged copy."""
        retention, scratch = self._retention, self._scratch(len(missing))
        in_progress = _Batch(outcome)
        run(
            lambda: kernel.absorb(self._shell.state, batch, missing, newest, retention, scratch, in_progress.outcome),
            lambda signal: self._make_room(signal, in_progress),
        )
        self._expire(in_progress.outcome)
        return in_progress.outcome

    def _expire(self, outcome: kernel.Outcome) -> None:
        """Remove the versions that have expired at the outcome's stream time; list them as touched, in offset order."""
        if self._retention == kernel.LATEST:
            return
        before, tally = outcome.tally[kernel.TOUCHED], outcome.tally
        due = np.empty(self._shell.state.expiry.numbers[time_buffer.HELD], np.int32)
        tally[kernel.FLOOR] = self._floor_at(int(tally[kernel.STREAM_TIME]))
        kernel.expire(self._shell.state, tally[kernel.FLOOR], due, outcome)
        # rule: hold-for-readers
        self._give_up(due, outcome)
        expired = outcome.touched[before : outcome.tally[kernel.TOUCHED]]
        expired[:] = expired[np.argsort(self.versions.payloads.offset[expired])]

    def _give_up(self, due: Array, outcome: kernel.Outcome) -> None:
        """Remove all versions past the retention if those kept for readers alone exceed `hold_for_readers`.

        The versions kept for readers are measured only if the whole partition exceeds that bound.
        """
        tally, bound = outcome.tally, self._config.hold_for_readers
        kept_from = tally[kernel.STREAM_TIME] - self._retention
        if tally[kernel.FLOOR] >= kept_from or self._shell.numbers[kernel.BYTES_HELD] <= bound:
            return
        if kernel.bytes_for_readers(self._shell.state, kept_from, due) > bound:
            expired = tally[kernel.EXPIRED]
            kernel.expire(self._shell.state, kept_from, due, outcome)
            tally[kernel.FLOOR], tally[kernel.GIVEN_UP] = kept_from, tally[kernel.EXPIRED] - expired

    def _scratch(self, rows: int) -> LookupScratch:
        return LookupScratch(np.empty(rows, np.int64), np.empty(rows, np.int64))

    def _settle(self, outcome: kernel.Outcome) -> None:
        """End the batch: mark touched versions as stored, or free them. Build the batch's tables before this call."""
        kernel.settle(self._shell.state, outcome)
        self._set_stream_time(int(outcome.tally[kernel.STREAM_TIME]))
        self._reading[READABLE_FROM] = outcome.tally[kernel.FLOOR]

    def _make_room(self, signal: int, batch: _Batch) -> None:
        """Make the room that the kernel asked for: in the state, or in the batch's outcome."""
        state, length = self._shell.state, int(batch.outcome.tally[kernel.NEEDED])
        if signal == kernel.NEEDS_REPLACED:
            batch.outcome = batch.outcome._replace(replaced=_larger(batch.outcome))
        elif signal == kernel.NEEDS_SLOT:
            self._shell.add_slots("versions")
        elif signal == kernel.NEEDS_KEY:
            self._shell.add_indexed_slots("keys", lambda state: version_chains.reindex(state.versions))
        elif signal == kernel.NEEDS_ARENA:
            self._shell.make_room_for(state.versions.payloads, state.pool, length)
        else:
            repack = partial(version_chains.repack, state.versions)
            self._shell.make_room("chains", state.versions.chains, length, repack)

    def _replay(self, rows: pa.RecordBatch) -> None:
        batch = self._keys.from_changelog(flat_records(columns.records_of(rows)), rows)
        deleted, scratch, in_progress = deletions(rows), self._scratch(rows.num_rows), _Batch(self._outcome(0))
        run(
            lambda: kernel.replay(self._shell.state, batch, deleted, self._retention, scratch, in_progress.outcome),
            lambda signal: self._make_room(signal, in_progress),
        )

    def _result(
        self, batch: FlatRecords, outcome: kernel.Outcome, own: FlatRecords = _NO_RECORDS, newest: int = MAX_TIMESTAMP
    ) -> StepResult:
        """Return the outcome as tables, and settle the batch. `own`: the records with the keys of the topic."""
        changed = net_changes(self._shell.state.status, outcome.touched[: outcome.tally[kernel.TOUCHED]])
        stored, unaccepted, before = self.versions.payloads, outcome.unaccepted, self.stream_time
        changes = tables.changes(self._shell.state, batch, outcome.touched[changed])
        undo = tables.undo(self._shell.state, outcome, changed, changes["key"])
        late = late_and_rejected.late(stored, own, unaccepted, self._retention, "older than history_retention")
        rejected = late_and_rejected.rejected(stored, own, unaccepted, newest)
        self._settle(outcome)
        return StepResult(
            emissions=NO_EMISSIONS,
            late=late,
            rejected=rejected,
            changes=self._keys.with_record_keys(changes),
            undo=self._keys.with_record_keys(undo),
            counts=measures.counts(self._shell.state, outcome),
            stream_time=self.stream_time,
            measures=measures.measures(self._shell.state, outcome),
            floor=None if self._retention == kernel.LATEST else int(self._reading[READABLE_FROM]),
            passage=late_and_rejected.passage(
                (before, self.stream_time),
                batch,
                int(outcome.tally[kernel.NEXT_ROW]),
                unaccepted,
                np.empty(0, np.int64),
            ),
        )


class _Batch:
    """A batch in progress. Its outcome is replaced by a larger one when it lacks room."""

    def __init__(self, outcome: kernel.Outcome) -> None:
        self.outcome = outcome


def _larger(outcome: kernel.Outcome) -> kernel.Replaced:
    """Return a copy of the replaced records with more room for bytes."""
    replaced, used, wanted = (
        outcome.replaced,
        *(int(outcome.tally[name]) for name in (kernel.REPLACED_BYTES, kernel.NEEDED)),
    )
    data = np.empty(2 * (len(replaced.data) + wanted), np.uint8)
    data[:used] = replaced.data[:used]
    return replaced._replace(data=data)
