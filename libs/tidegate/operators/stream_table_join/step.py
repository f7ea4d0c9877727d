"""The join's kernels: the effects of a record, an advance, a flush and a changelog row on the buffer, and the lookups.

The buffer decides which records leave, and in which order. Their versions are looked up afterwards, for all at once:
the table does not change within a batch. During a batch, a slot only notes the row of its record (`row`, plus 1);
payloads are copied once, when the batch is settled. A slot that was stored before the batch and leaves in it keeps its
block until the batch is settled, because its record is still to be joined. A slot that was opened in the batch and
leaves in it is free at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels import (
    hash_index,
    payloads,
    time_buffer,
    version_chains,
)
from tidegate.kernels.columns import AHEAD
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import prefetch
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Located, Payloads
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, TimeBuffer
from tidegate.kernels.version_chains import FAR_AHEAD, NONE, READABLE_FROM, LookupScratch, Versions
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, TIME_ONLY, Timestamped, Unaccepted

DONE, NEEDS_SLOT, BEFORE_HISTORY, NEEDS_ARENA = range(4)
"""Why a kernel returned: all rows are done, it needs a slot or bytes, or the stream is before the table's history."""

LISTED = -1
"""The `row` of a touched slot that has no record in the batch."""

MAX = 2**63 - 1

NEXT_ROW, STREAM_TIME, EMITTED, TOUCHED, HELD_MAX, HELD_BYTES_MAX, SETTLED, EXPIRED = range(8)
TALLIES = 8

CHECKSUM, NUMBERS = 2, 3
"""The index of the sum of all slots' checksums among a state's `numbers`, and the number of these."""

NO_LIMIT = MAX
"""A `wait` for the table without a limit."""

EXPIRED_VERSION = -2
"""In place of a version's slot: the version may have expired, so the table no longer knows which one it was."""


class Rules(NamedTuple):
    """The configuration as numbers: grace 0 for no buffer, wait NO_LIMIT for a wait until the table has caught up.

    `inner`: records without a version are dropped. `keyed`: records without a key are rejected.
    """

    grace: int
    wait: int
    inner: bool
    keyed: bool


class Limits(NamedTuple):
    """The times that bound a batch.

    `clock`: the batch's clock, ms; 0: no wait for the table runs out. `open_until`: the event time up to which the
    table is complete. `complete_from`: the event time before which the stream must not be.
    """

    clock: int
    open_until: int
    complete_from: int


class State(NamedTuple):
    """All arrays of a partition. In the time buffer a record's place is its timestamp, and its arrival its offset.

    `arrived`: per slot the clock of the batch in which its record arrived. `numbers`: see CHECKSUM.
    """

    time: TimeBuffer
    pool: SlotPool
    payloads: Payloads
    row: Array
    arrived: Array
    numbers: Array


class Outcome(NamedTuple):
    """The effects of a batch: records to join (source, and whether late), touched slots, rejected rows, and tallies.

    `emitted_after`: per record to join the row after which it left. `oldest`: per row the timestamp of the oldest
    record that was held after it.
    """

    emitted: Array
    late: Array
    emitted_after: Array
    oldest: Array
    touched: Array
    unaccepted: Unaccepted
    tally: Array


class Found(NamedTuple):
    """The versions found for some records: slot, position and length of the value, and valid_from.

    `version` is NONE without one, and EXPIRED_VERSION where it may have expired; `length` is NULL_LENGTH then.
    """

    version: Array
    start: Array
    length: Array
    valid_from: Array


@compiled_in_place
def absorb(state: State, dated: Timestamped, limits: Limits, rules: Rules, outcome: Outcome) -> Any:
    """Release what is due, then process the rows from tally[NEXT_ROW] on; return DONE, or why it stopped before one."""
    tally = outcome.tally
    release(state, tally[STREAM_TIME] - rules.grace, limits, rules.wait, outcome)
    for row in range(tally[NEXT_ROW], len(dated.batch.offset)):
        tally[NEXT_ROW] = row
        timestamp = dated.batch.timestamp[row]
        code = _verdict(dated, row, rules)
        if code == TIME_ONLY:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
            tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
            release(state, tally[STREAM_TIME] - rules.grace, limits, rules.wait, outcome)
        elif code != ACCEPTED:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
        elif dated.batch.key_length[row] >= 0 and max(timestamp, tally[STREAM_TIME]) < limits.complete_from:
            # rule: stream-behind-history
            return BEFORE_HISTORY
        elif _is_joined_at_once(state.time, dated.batch, row, tally[STREAM_TIME], rules):
            _join_at_once(dated.batch, row, rules, outcome)
        else:
            if not slots.has_slot(state.pool):
                return NEEDS_SLOT
            _observe_time(outcome, timestamp)
            _hold(state, dated.batch, row, limits.clock, outcome)
            release(state, tally[STREAM_TIME] - rules.grace, limits, rules.wait, outcome)
            _observe_size(tally, state.time)
        outcome.oldest[row] = oldest(state.time)
    tally[NEXT_ROW] = len(dated.batch.offset)
    return DONE


@inlined
def _verdict(dated: Timestamped, row: int, rules: Rules) -> Any:
    if dated.batch.value_length[row] < 0:
        return late_and_rejected.NULL_VALUE
    code = late_and_rejected.bad_timestamp(dated.batch.timestamp[row], dated.missing[row], dated.newest)
    if code == ACCEPTED and rules.keyed and dated.batch.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    return code


@inlined
def _is_joined_at_once(time: TimeBuffer, batch: FlatRecords, row: int, stream_time: int, rules: Rules) -> bool:
    """Return True for every record if there is no grace; otherwise for a late one and one without a key.

    A late record does not overtake older ones that wait for the table: the steps behind would take these as late.
    """
    if rules.grace == 0 or batch.key_length[row] < 0:
        return True
    # rule: late-overtakes-none
    return bool(batch.timestamp[row] < min(stream_time - rules.grace, oldest(time)))


@inlined
def _join_at_once(batch: FlatRecords, row: int, rules: Rules, outcome: Outcome) -> None:
    """Release the record without buffering it. It advances stream time only if there is no grace and it has a key."""
    timestamp = batch.timestamp[row]
    has_key = batch.key_length[row] >= 0
    if rules.grace == 0 and has_key:
        _observe_time(outcome, timestamp)
    else:
        late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, outcome.tally[STREAM_TIME])
    _emit(outcome, row, rules.grace > 0 and has_key)


@inlined
def oldest(time: TimeBuffer) -> Any:
    """Return the timestamp of the oldest record held; MAX if nothing is held."""
    return wide(time.place[0]) if time.numbers[HELD] > 0 else wide(MAX)


@inlined
def release(state: State, due: int, limits: Limits, wait: int, outcome: Outcome) -> None:
    """Release held records up to the timestamp `due`, in order; stop at the first one that waits for the table."""
    while state.time.numbers[HELD] > 0 and state.time.place[0] <= due:
        slot = wide(state.time.heap[0])
        # rule: due-after-table
        if state.time.place[0] > limits.open_until and limits.clock - state.arrived[slot] < wait:
            return
        _emit(outcome, wide(state.row[slot]) - 1 if state.row[slot] > 0 else ~slot, False)
        _leave(state, slot, outcome)


@compiled_in_place
def waiting(time: TimeBuffer, due: int) -> tuple[int, int]:
    """Return the number and bytes of held records up to the timestamp `due`: they wait only for the table."""
    records, size = 0, 0  # the walk is that over windows which close; what it counts is not
    node = time_buffer.first_due(time, due)
    while node != time_buffer.NONE:
        records += 1
        size += time.size[time.heap[node]]
        node = time_buffer.next_due(time, node, due)
    return records, size


@compiled_in_place
def look_up(
    versions: Versions, data: Array, arena: Array, records: Located, scratch: LookupScratch, found: Found
) -> Any:
    """Fill `found` with the version of each record's key that was valid at the record's timestamp.

    `scratch` is overwritten. Return for how many records that version may have expired.
    """
    expired = 0
    rows = len(found.version)
    for row in range(rows):
        scratch.fingerprints[row] = _fingerprint(
            versions.key_index, data, arena, records.key_start[row], records.key_length[row]
        )
    for row in range(-FAR_AHEAD, rows):
        version_chains.prefetch_ahead(versions, scratch, row)
        if row >= 0:
            found.version[row] = _version(versions, data, arena, records, scratch, row)
            prefetch(versions.payloads.value_length, found.version[row])
    for row in range(rows):
        version = found.version[row]
        has_value = version >= 0 and versions.payloads.value_length[version] >= 0
        found.version[row] = version if has_value else min(version, NONE)
        expired += 1 if version == EXPIRED_VERSION else 0
        found.start[row] = version_chains.value_start(versions, version) if has_value else 0
        found.length[row] = versions.payloads.value_length[version] if has_value else NULL_LENGTH
        found.valid_from[row] = version_chains.valid_from(versions, version) if has_value else 0
    return expired


@inlined
def _version(versions: Versions, data: Array, arena: Array, records: Located, scratch: LookupScratch, row: int) -> Any:
    """Return the slot of the version valid at the record's timestamp, which may be a tombstone; NONE without one.

    Return EXPIRED_VERSION if the key has versions, but the one that was valid then may have expired.
    """
    start = records.key_start[row]
    length = records.key_length[row]
    if length < 0:
        return NONE
    if start >= 0:
        key = version_chains.find_prefetched(versions, scratch, row, data, start, length)
    else:
        key = version_chains.find_prefetched(versions, scratch, row, arena, ~start, length)
    if key == NONE:
        return NONE
    at = version_chains.entry_as_of(versions, key, records.timestamp[row])
    if at == NONE:
        # rule: expired-not-unmatched
        return EXPIRED_VERSION if records.timestamp[row] < versions.numbers[READABLE_FROM] else NONE
    return version_chains.version_at(versions, key, at)


@inlined
def _fingerprint(index: Index, data: Array, arena: Array, start: int, length: int) -> Any:
    """Return the fingerprint of the key; for a null key any number."""
    if start >= 0:
        return hash_index.fingerprint(index, data, start, max(0, length))
    return hash_index.fingerprint(index, arena, ~start, length)


@compiled_in_place
def replay(state: State, index: Index, batch: FlatRecords, deleted: Array, arrived: Array, out: Outcome) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or NEEDS_SLOT before the row that needs one.

    `index`: a hash index of the held slots, by offset.
    """
    offsets = state.payloads.offset
    for row in range(out.tally[NEXT_ROW], len(batch.offset)):
        out.tally[NEXT_ROW] = row
        slot = wide(index.places[hash_index.candidate(index, offsets, batch.offset[row], _home(index, batch, row))]) - 1
        if slot >= 0:
            hash_index.remove(index, offsets, slot)
            _leave(state, slot, out)
        if not deleted[row]:
            if not slots.has_slot(state.pool):
                return NEEDS_SLOT
            hash_index.insert(index, offsets, _hold(state, batch, row, arrived[row], out))
    out.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _home(index: Index, batch: FlatRecords, row: int) -> Any:
    return hash_index.home(index, batch.offset[row])


@compiled_in_place
def index_by_offset(state: State, slots: Array, index: Index) -> None:
    """Insert the slots into the index, which is empty."""
    for at in range(len(slots)):
        hash_index.insert(index, state.payloads.offset, wide(slots[at]))


@inlined
def _hold(state: State, batch: FlatRecords, row: int, arrived: int, outcome: Outcome) -> Any:
    """Hold the row's record in a new slot; return the slot."""
    unused = state.pool.numbers[slots.FREE] == 0
    slot = slots.take(state.pool)
    if unused:
        state.row[slot] = 0
        state.payloads.block[slot] = 0
        state.payloads.checksum[slot] = 0
    if state.row[slot] == 0:
        _list(outcome, slot)
    state.row[slot] = row + 1
    state.arrived[slot] = arrived
    state.payloads.timestamp[slot] = batch.timestamp[row]
    time_buffer.push(state.time, slot, batch.timestamp[row], batch.offset[row], payloads.record_length(batch, row))
    return slot


@inlined
def _leave(state: State, slot: int, outcome: Outcome) -> None:
    """Stop holding the slot: free it if it was opened in the batch; otherwise `settle` frees it."""
    time_buffer.remove(state.time, slot)
    if state.row[slot] == 0:
        _list(outcome, slot)
        state.row[slot] = LISTED
    if state.payloads.block[slot] == 0:
        slots.give_back(state.pool, slot)


@inlined
def _list(outcome: Outcome, slot: int) -> None:
    outcome.touched[outcome.tally[TOUCHED]] = slot
    outcome.tally[TOUCHED] += 1


@inlined
def _emit(outcome: Outcome, source: int, late: bool) -> None:
    at = outcome.tally[EMITTED]
    outcome.emitted[at] = source
    outcome.late[at] = late
    outcome.emitted_after[at] = outcome.tally[NEXT_ROW]
    outcome.tally[EMITTED] += 1


@compiled_in_place
def settle(state: State, batch: FlatRecords, outcome: Outcome) -> Any:
    """Store payloads of touched held slots, free those that left; return DONE or NEEDS_ARENA (call again)."""
    for at in range(outcome.tally[SETTLED], outcome.tally[TOUCHED]):
        outcome.tally[SETTLED] = at
        _prefetch_ahead(state, batch, outcome, at)
        slot = wide(outcome.touched[at])
        if time_buffer.is_held(state.time, slot):
            if not payloads.store(state.payloads, slot, batch, wide(state.row[slot]) - 1):
                return NEEDS_ARENA
            payloads.set_checksum(state.payloads, slot, checksum_of(state, slot), state.numbers, CHECKSUM)
        elif state.payloads.block[slot] != 0:
            payloads.forget(state.payloads, slot, state.numbers, CHECKSUM)
            slots.give_back(state.pool, slot)
        state.row[slot] = 0
    return DONE


@inlined
def _prefetch_ahead(state: State, batch: FlatRecords, outcome: Outcome, at: int) -> None:
    """Prefetch the record of the touched slot some places ahead."""
    row = wide(state.row[outcome.touched[min(at + AHEAD, outcome.tally[TOUCHED] - 1)]]) - 1
    if row >= 0:
        prefetch(batch.data, batch.key_start[row])
        prefetch(batch.data, batch.value_start[row])


@inlined
def checksum_of(state: State, slot: int) -> Any:
    """Return a 32-bit checksum of the slot: its stored record, the clock of its arrival, and its place."""
    seed = hash_index.mix(state.arrived[slot] ^ time_buffer.place_of(state.time, slot))
    return payloads.content_hash(state.payloads, slot, seed) & 0xFFFFFFFF


@inlined
def _observe_time(outcome: Outcome, timestamp: int) -> None:
    """Advance stream time to at least the timestamp, and count the record's lateness."""
    tally = outcome.tally
    tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
    late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])


@inlined
def _observe_size(tally: Array, time: TimeBuffer) -> None:
    tally[HELD_MAX] = max(tally[HELD_MAX], time.numbers[HELD])
    tally[HELD_BYTES_MAX] = max(tally[HELD_BYTES_MAX], time.numbers[HELD_BYTES])
