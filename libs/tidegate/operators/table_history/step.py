"""A table's kernels: the effects of a record, an advance and a changelog row on the versions.

A version is stored as soon as its record is read, so chains and payloads agree after every record. At the end of a
batch, the `status` of a version says what the batch did to it. An expired version keeps its slot until the batch's
tables are built. Every version that the batch touched is listed once.

Expiry needs no time per version: a version expires when its successor is as old as the retention. So only the second
version of each key matters, and a time buffer has the keys in the order of these. What has expired depends only on
stream time, the readers' needs and the versions, so it is enough to expire once, after the last record of a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import payloads, time_buffer, touched, version_chains
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import copy_bytes, prefetch
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import TimeBuffer
from tidegate.kernels.touched import FREE, OPENED, STORED
from tidegate.kernels.version_chains import AHEAD, FAR_AHEAD, NONE, LookupScratch, Versions
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY, Unaccepted

DONE, NEEDS_SLOT, NEEDS_KEY, NEEDS_ARENA, NEEDS_CHAINS, NEEDS_REPLACED = range(6)
"""Why a kernel returned: all rows are done, or it needs more room."""

NEXT_ROW, STREAM_TIME, TOUCHED, APPLIED, SUPERSEDED, EXPIRED, NEEDED, REPLACED_BYTES, FLOOR, GIVEN_UP = range(10)
TALLIES = 10
"""NEEDED: the bytes for which there was no room. REPLACED_BYTES: the bytes of the records in Replaced. FLOOR: the first
time from which on all versions are kept. GIVEN_UP: versions that were removed although readers may still need them."""

LATEST = -1
"""The value of `retention` for a table of latest values."""

CHECKSUM, KEYS_HELD, VERSIONS_HELD, BYTES_HELD = range(4)
NUMBERS = 4
"""The sum of the checksums of all versions, the numbers of keys and versions, and the bytes of the records."""


class State(NamedTuple):
    """All arrays of a partition. `expiry`: keys by the valid_from of their second version. `status`: per version."""

    versions: Versions
    pool: SlotPool
    expiry: TimeBuffer
    status: Array
    numbers: Array


class Replaced(NamedTuple):
    """Copies of the old records of versions that the batch replaced: the version itself has room for the new one only.

    Per touched version: the start of its old record in `data` (NOT_REPLACED: it was not replaced), its lengths, its
    timestamp and its offset. The arrays are as long as the batch has records: a batch replaces no more versions, and
    it touches these before those that expire.
    """

    data: Array
    start: Array
    key_length: Array
    value_length: Array
    headers_length: Array
    timestamp: Array
    offset: Array


NOT_REPLACED = -1
"""The `start` in Replaced of a touched version whose record was not replaced."""


class Outcome(NamedTuple):
    """The effects of a batch: touched versions, replaced records, late and rejected rows, and the tallies."""

    touched: Array
    replaced: Replaced
    unaccepted: Unaccepted
    tally: Array


@compiled_in_place
def absorb(
    state: State,
    batch: FlatRecords,
    missing: Array,
    newest: int,
    retention: int,
    scratch: LookupScratch,
    outcome: Outcome,
) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or which room is missing for the row at tally[NEXT_ROW].

    `missing`: a code per row, 0 where nothing is missing. `newest`: the largest timestamp that is accepted.
    """
    tally = outcome.tally
    version_chains.compute_fingerprints(state.versions, batch.data, batch.key_start, batch.key_length, scratch)
    begin = tally[NEXT_ROW]
    for row in range(begin - FAR_AHEAD, len(batch.offset)):
        version_chains.prefetch_ahead(state.versions, scratch, row)
        if row < begin:
            continue
        tally[NEXT_ROW] = row
        timestamp = batch.timestamp[row]
        code = _verdict(batch, row, missing[row], newest, retention, tally[STREAM_TIME])
        if code != ACCEPTED:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
            if code == TIME_ONLY:
                tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
            continue
        key = _find(state, batch, row, scratch)
        at, replaces = _locate(state.versions, key, timestamp, retention)
        lacking = _missing_room(state, batch, row, key, at, replaces, outcome)
        if lacking != DONE:
            return lacking
        tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
        late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
        tally[SUPERSEDED if replaces and version_chains.time_at(state.versions, key, at) == timestamp else APPLIED] += 1
        if replaces:
            _save_replaced(state, version_chains.version_at(state.versions, key, at), outcome)
        version = _write(state, batch, row, key, at, replaces, scratch)
        if not replaces:
            _list_touched(outcome, version)
            state.status[version] = OPENED
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _verdict(batch: FlatRecords, row: int, missing: int, newest: int, retention: int, stream_time: int) -> Any:
    if batch.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    code = late_and_rejected.bad_timestamp(batch.timestamp[row], missing, newest)
    if code == ACCEPTED and retention != LATEST and batch.timestamp[row] < stream_time - retention:
        return LATE
    return code


@inlined
def _locate(versions: Versions, key: int, timestamp: int, retention: int) -> Any:
    """Return the chain entry that a record of that time replaces, and True; or the one to insert before, and False."""
    if key == NONE:
        return 0, False
    if retention == LATEST:
        return 0, True
    last = wide(versions.length[key]) - 1
    if version_chains.time_at(versions, key, last) < timestamp:
        return last + 1, False
    at = version_chains.entries_until(versions, key, timestamp)
    if at > 0 and version_chains.time_at(versions, key, at - 1) == timestamp:
        return at - 1, True
    return at, False


@compiled_in_place
def expire(state: State, until: int, due: Array, outcome: Outcome) -> None:
    """Remove the versions whose successor is valid from `until` or earlier. `due`: scratch with room for all keys."""
    keys = _list_due(state.expiry, until, due)
    for at in range(-2 * AHEAD, keys):
        _prefetch_due(state.versions, due, keys, at)
        if at >= 0:
            _expire_key(state, wide(due[at]), until, outcome)


@inlined
def _expire_key(state: State, key: int, until: int, outcome: Outcome) -> None:
    """Remove the key's versions valid from `until` or earlier, except the newest of these."""
    versions = state.versions
    expired = version_chains.entries_until(versions, key, until) - 1
    for at in range(expired):
        version = version_chains.version_at(versions, key, at)
        if touched.remove(state.status, version):
            _list_touched(outcome, version)
    outcome.tally[EXPIRED] += expired
    version_chains.remove_first(versions, key, expired)
    _reschedule(state, key)


@compiled_in_place
def bytes_for_readers(state: State, until: int, due: Array) -> Any:
    """Return the bytes of the versions that `expire` would remove: those that are kept only for readers."""
    versions = state.versions
    total = 0
    for at in range(_list_due(state.expiry, until, due)):
        key = wide(due[at])
        for entry in range(version_chains.entries_until(versions, key, until) - 1):
            total += payloads.payload_length(versions.payloads, version_chains.version_at(versions, key, entry))
    return total


@inlined
def _list_due(expiry: TimeBuffer, until: int, due: Array) -> Any:
    """List in `due` the keys whose second version is valid from `until` or earlier; return their number."""
    count = 0
    node = time_buffer.first_due(expiry, until)
    while node != time_buffer.NONE:
        due[count] = expiry.heap[node]
        count += 1
        node = time_buffer.next_due(expiry, node, until)
    return count


@inlined
def _prefetch_due(versions: Versions, due: Array, keys: int, at: int) -> None:
    """Prefetch the oldest chain entries of keys that come after this one."""
    if at + 2 * AHEAD < keys:
        prefetch(versions.fingerprint, due[at + 2 * AHEAD])
    if 0 <= at + AHEAD < keys:
        version_chains.prefetch_first(versions, wide(due[at + AHEAD]))


@compiled_in_place
def replay(
    state: State, batch: FlatRecords, deleted: Array, retention: int, scratch: LookupScratch, outcome: Outcome
) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or which room is missing for that row."""
    version_chains.compute_fingerprints(state.versions, batch.data, batch.key_start, batch.key_length, scratch)
    begin = outcome.tally[NEXT_ROW]
    for row in range(begin - FAR_AHEAD, len(batch.offset)):
        version_chains.prefetch_ahead(state.versions, scratch, row)
        if row < begin:
            continue
        outcome.tally[NEXT_ROW] = row
        key = _find(state, batch, row, scratch)
        at, replaces = _locate(state.versions, key, batch.timestamp[row], retention)
        if deleted[row]:
            if replaces:
                _remove(state, key, at)
            continue
        lacking = _missing_room(state, batch, row, key, at, replaces, outcome)
        if lacking != DONE:
            return lacking
        state.status[_write(state, batch, row, key, at, replaces, scratch)] = STORED
    outcome.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _find(state: State, batch: FlatRecords, row: int, scratch: LookupScratch) -> Any:
    start, length = batch.key_start[row], batch.key_length[row]
    return version_chains.find_prefetched(state.versions, scratch, row, batch.data, start, length)


@inlined
def _missing_room(
    state: State, batch: FlatRecords, row: int, key: int, at: int, replaces: bool, outcome: Outcome
) -> Any:
    """Return DONE, or which room is missing to write the row at that entry."""
    length = payloads.record_length(batch, row)
    if not arena.has_room(state.versions.payloads.arena, length):
        outcome.tally[NEEDED] = length
        return NEEDS_ARENA
    if replaces:
        length = payloads.payload_length(state.versions.payloads, version_chains.version_at(state.versions, key, at))
        if outcome.tally[REPLACED_BYTES] + length > len(outcome.replaced.data):
            outcome.tally[NEEDED] = length
            return NEEDS_REPLACED
        return DONE
    if not slots.has_slot(state.pool):
        return NEEDS_SLOT
    if key == NONE and not slots.has_slot(state.versions.keys):
        return NEEDS_KEY
    if not version_chains.has_room(state.versions, key, at):
        outcome.tally[NEEDED] = version_chains.wanted_bytes(state.versions, key)
        return NEEDS_CHAINS
    return DONE


@inlined
def _write(
    state: State, batch: FlatRecords, row: int, key: int, at: int, replaces: bool, scratch: LookupScratch
) -> Any:
    """Write the row's record into the version at entry `at` if `replaces`, else into a new one before it; return it."""
    versions = state.versions
    if replaces:
        version = version_chains.version_at(versions, key, at)
        _store(state, version, batch, row)
        version_chains.set_time(versions, key, at, batch.timestamp[row])
    else:
        version = _new_version(state)
        _store(state, version, batch, row)
        if key == NONE:
            key = _new_key(state, scratch.fingerprints[row])
        version_chains.make_room(versions, key, at)
        version_chains.insert(versions, key, at, batch.timestamp[row], version)
    if at <= 1:
        _reschedule(state, key)
    return version


@inlined
def _save_replaced(state: State, version: int, outcome: Outcome) -> None:
    """Copy the record of a version that is about to be replaced, if it was there before the batch."""
    if not touched.change(state.status, version):
        return
    stored, replaced, at, start = (
        state.versions.payloads,
        outcome.replaced,
        outcome.tally[TOUCHED],
        outcome.tally[REPLACED_BYTES],
    )
    _list_touched(outcome, version)
    length = payloads.payload_length(stored, version)
    replaced.start[at] = start
    replaced.key_length[at] = stored.key_length[version]
    replaced.value_length[at] = stored.value_length[version]
    replaced.headers_length[at] = stored.headers_length[version]
    replaced.timestamp[at] = stored.timestamp[version]
    replaced.offset[at] = stored.offset[version]
    copy_bytes(stored.arena.data, payloads.start_of(stored, version), replaced.data, start, length)
    outcome.tally[REPLACED_BYTES] += length


@inlined
def _list_touched(outcome: Outcome, version: int) -> None:
    at = outcome.tally[TOUCHED]
    outcome.touched[at] = version
    if at < len(outcome.replaced.start):
        outcome.replaced.start[at] = NOT_REPLACED
    outcome.tally[TOUCHED] += 1


@inlined
def _remove(state: State, key: int, at: int) -> None:
    """Remove the version of that entry, and with its last version the key."""
    version = version_chains.version_at(state.versions, key, at)
    version_chains.remove(state.versions, key, at)
    if at <= 1:
        _reschedule(state, key)
    if state.versions.length[key] == 0:
        version_chains.drop_key(state.versions, key)
        state.numbers[KEYS_HELD] -= 1
    _drop(state, version)


@inlined
def _drop(state: State, version: int) -> None:
    """Drop the version's record, and free its slot."""
    stored = state.versions.payloads
    state.status[version] = FREE
    state.numbers[VERSIONS_HELD] -= 1
    state.numbers[BYTES_HELD] -= payloads.payload_length(stored, version)
    payloads.forget(stored, version, state.numbers, CHECKSUM)
    slots.give_back(state.pool, version)


@inlined
def _new_key(state: State, fingerprint: int) -> Any:
    key = version_chains.add_key(state.versions, fingerprint)
    state.expiry.position[key] = time_buffer.NOT_HELD
    state.numbers[KEYS_HELD] += 1
    return key


@inlined
def _new_version(state: State) -> Any:
    """Take a slot for a version without a record; initialize it if it was never used, whatever was in its memory."""
    unused = state.pool.numbers[slots.FREE] == 0
    version = slots.take(state.pool)
    if unused:
        state.status[version] = FREE
        state.versions.payloads.block[version] = 0
        state.versions.payloads.checksum[version] = 0
    return version


@inlined
def _store(state: State, version: int, batch: FlatRecords, row: int) -> None:
    stored = state.versions.payloads
    if stored.block[version] != 0:
        state.numbers[BYTES_HELD] -= payloads.payload_length(stored, version)
    else:
        state.numbers[VERSIONS_HELD] += 1
    payloads.store(stored, version, batch, row)
    state.numbers[BYTES_HELD] += payloads.payload_length(stored, version)
    payloads.set_checksum(stored, version, checksum_of(state, version), state.numbers, CHECKSUM)


@inlined
def _reschedule(state: State, key: int) -> None:
    """Put the key at its second version's time and offset in the expiry order; remove it if replaces is no second."""
    versions, expiry = state.versions, state.expiry
    held = time_buffer.is_held(expiry, key)
    if versions.length[key] < 2:
        if held:
            time_buffer.remove(expiry, key)
        return
    place = version_chains.time_at(versions, key, 1)
    arrival = versions.payloads.offset[version_chains.version_at(versions, key, 1)]
    if not held:
        time_buffer.push(expiry, key, place, arrival, 0)
    elif place != time_buffer.place_of(expiry, key) or arrival != expiry.arrival[key]:
        expiry.arrival[key] = arrival
        time_buffer.move(expiry, key, place)


@compiled_in_place
def settle(state: State, outcome: Outcome) -> None:
    """Free the touched versions that were removed, and mark all others as stored."""
    for at in range(outcome.tally[TOUCHED]):
        version = wide(outcome.touched[at])
        if touched.is_ghost(state.status, version):
            _drop(state, version)
        else:
            state.status[version] = STORED


@inlined
def checksum_of(state: State, version: int) -> Any:
    """Return a 31-bit checksum of the version's stored record."""
    return payloads.content_hash(state.versions.payloads, version, 0) & 0x7FFFFFFF
