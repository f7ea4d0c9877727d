"""Deduplication's kernels: the effects of a record, an advance and a changelog row on the remembered first records.

A slot remembers one first record: its key, timestamp and offset. A key has a slot for each of its first records that
has not expired; these are at least `within` apart. What a record is, duplicate or first, depends on them alone: a
record that is accepted is at least T - grace, and whatever has expired is at least `within` before that.

A slot that expires leaves the order and the index at once. Its key stays until the tables of the batch are built, and
only then is the slot free (`release`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, TimeBuffer
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY, Unaccepted

DONE, NEEDS_SLOT, NEEDS_ROOM, FULL_KEYS, FULL_BYTES = range(5)
"""Why a kernel returned: all rows are done; the row at tally[NEXT_ROW] needs a slot or room in the arena, or would
exceed a bound of `shut_down`."""

MAX = 2**63 - 1
"""No bound, and the `within` of `forever`."""

NEVER = -1
"""A due time at which nothing expires: no timestamp is that small."""

NEXT_ROW, STREAM_TIME, EMITTED, EXPIRED, SUPERSEDED, HELD_MAX, HELD_BYTES_MAX = range(7)
TALLIES = 7

T, OPENED, WINDOWED, CHECK = range(4)
NUMBERS = 4
"""A state's `numbers`: stream time, 1 if it is initialized, 1 if keys have windows, the sum of all slots' checksums."""


class Rules(NamedTuple):
    """The configuration as numbers: a grace of -1 is none, MAX is no bound and remembered forever."""

    within: int
    grace: int
    stop_keys: int
    stop_bytes: int


class State(NamedTuple):
    """All arrays of a partition's state."""

    time: TimeBuffer
    pool: SlotPool
    payloads: Payloads
    key_index: Index
    fingerprint: Array
    numbers: Array


class Outcome(NamedTuple):
    """The effects of a batch: emitted rows and their slots, expired slots, late and rejected rows, the tallies."""

    emitted: Array
    opened: Array
    expired: Array
    unaccepted: Unaccepted
    tally: Array


@compiled_in_place
def absorb(
    state: State, batch: FlatRecords, keys: FlatRecords, missing: Array, newest: int, rules: Rules, outcome: Outcome
) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or why it stopped before the row at tally[NEXT_ROW].

    `keys`: the batch with keys alone, which is what slots store. `missing`: a code per row, 0 where nothing is
    missing. `newest`: the largest timestamp that is accepted.
    """
    tally = outcome.tally
    expire(state, due_until(rules, tally[STREAM_TIME]), outcome)  # removes something under new rules only
    for row in range(tally[NEXT_ROW], len(batch.offset)):
        tally[NEXT_ROW] = row
        timestamp = batch.timestamp[row]
        code = _verdict(batch, row, missing[row], newest, rules, tally[STREAM_TIME])
        # rule: unaccepted-changes-nothing
        if code != ACCEPTED:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
            if code == TIME_ONLY:
                tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
                expire(state, due_until(rules, tally[STREAM_TIME]), outcome)
            continue
        stream_time = max(tally[STREAM_TIME], timestamp)
        due = due_until(rules, stream_time)
        fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
        # rule: duplicates-dropped
        if find(state, batch, row, fingerprint, rules.within) >= 0:
            tally[SUPERSEDED] += 1
        else:
            signal = _remember_first(state, keys, row, fingerprint, due, rules, outcome)
            if signal != DONE:
                return signal
        tally[STREAM_TIME] = stream_time
        late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, stream_time)
        expire(state, due, outcome)
        tally[HELD_MAX] = max(tally[HELD_MAX], state.time.numbers[HELD])
        tally[HELD_BYTES_MAX] = max(tally[HELD_BYTES_MAX], state.time.numbers[HELD_BYTES])
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def due_until(rules: Rules, stream_time: int) -> Any:
    """Return the largest timestamp of a first record that has expired at this stream time."""
    # rule: remembered-while-accepted
    return NEVER if rules.within == MAX else stream_time - rules.grace - rules.within


@inlined
def expire(state: State, due: int, outcome: Outcome) -> None:
    """Forget the first records up to the timestamp `due`."""
    while state.time.numbers[HELD] > 0 and state.time.place[0] <= due:
        slot = wide(state.time.heap[0])
        _forget(state, slot)
        outcome.expired[outcome.tally[EXPIRED]] = slot
        outcome.tally[EXPIRED] += 1


@compiled_in_place
def expire_until(state: State, rules: Rules, outcome: Outcome) -> None:
    """Forget what has expired at the stream time of the outcome."""
    expire(state, due_until(rules, outcome.tally[STREAM_TIME]), outcome)


@compiled_in_place
def release(state: State, expired: Array) -> None:
    """Free expired slots and their keys. Build the tables of the batch before."""
    for at in range(len(expired)):
        _free(state, wide(expired[at]))


@compiled_in_place
def replay(state: State, batch: FlatRecords, deleted: Array, tally: Array) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, NEEDS_SLOT or NEEDS_ROOM.

    A row's slot is its key and timestamp; the rows have no values and no headers.
    """
    for row in range(tally[NEXT_ROW], len(batch.offset)):
        tally[NEXT_ROW] = row
        fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
        slot = find(state, batch, row, fingerprint, 1)
        if slot >= 0:
            _forget(state, slot)
            _free(state, slot)
        if not deleted[row]:
            signal = _remember(state, batch, row, fingerprint)
            if signal < 0:
                return ~signal
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def check_of(state: State, slot: int) -> Any:
    """Return a 32-bit checksum of the slot: its stored key, timestamp and offset, and its fingerprint."""
    return payloads.content_hash(state.payloads, slot, hash_index.mix(state.fingerprint[slot])) & 0xFFFFFFFF


@compiled_in_place
def reindex(state: State) -> None:
    """Rebuild the index, whose length may have changed, from all slots that are held."""
    state.key_index.places[:] = 0
    for slot in range(state.pool.numbers[slots.USED]):
        if time_buffer.is_held(state.time, slot):
            hash_index.insert(state.key_index, state.fingerprint, slot)


@inlined
def find(state: State, batch: FlatRecords, row: int, fingerprint: int, within: int) -> Any:
    """Return a slot of the row's key whose timestamp is less than `within` from the row's; -1 if there is none."""
    place = hash_index.home(state.key_index, fingerprint)
    while True:
        place = hash_index.candidate(state.key_index, state.fingerprint, fingerprint, place)
        slot = wide(state.key_index.places[place]) - 1
        if slot < 0:
            return slot
        apart = abs(state.payloads.timestamp[slot] - batch.timestamp[row])
        # rule: duplicates-within
        if apart < within and _has_key(state.payloads, batch, slot, row):
            return slot
        place = hash_index.next_place(state.key_index, place)


@inlined
def _has_key(stored: Payloads, batch: FlatRecords, slot: int, row: int) -> bool:
    """Return True if the slot, whose fingerprint is that of the row's key, has the same key."""
    length = batch.key_length[row]
    if hash_index.fingerprint_is_exact(length):
        return True
    if stored.key_length[slot] != length:
        return False
    start = payloads.start_of(stored, slot)
    return hash_index.same_bytes(batch.data, batch.key_start[row], stored.arena.data, start, length)


@inlined
def _verdict(batch: FlatRecords, row: int, missing: int, newest: int, rules: Rules, stream_time: int) -> Any:
    if batch.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    code = late_and_rejected.bad_timestamp(batch.timestamp[row], missing, newest)
    if code != ACCEPTED:
        return code
    # rule: late-beyond-grace
    return LATE if rules.grace >= 0 and batch.timestamp[row] < stream_time - rules.grace else ACCEPTED


@inlined
def _remember_first(
    state: State, keys: FlatRecords, row: int, fingerprint: int, due: int, rules: Rules, outcome: Outcome
) -> Any:
    """Remember the row as a first record and list it as emitted; return DONE, or what it lacks before any change."""
    full = _full(state.time, wide(keys.key_length[row]), due, rules)
    if full != DONE:
        return full
    slot = _remember(state, keys, row, fingerprint)
    if slot < 0:
        return ~slot
    outcome.emitted[outcome.tally[EMITTED]] = row
    outcome.opened[outcome.tally[EMITTED]] = slot
    outcome.tally[EMITTED] += 1
    return DONE


@inlined
def _full(time: TimeBuffer, size: int, due: int, rules: Rules) -> Any:
    """Return DONE, or the bound of `shut_down` that one more key of `size` bytes would exceed once the due ones left.

    Visits only slots that are due, and only if the key would exceed a bound before they leave.
    """
    keys = time.numbers[HELD] + 1 - rules.stop_keys
    total = time.numbers[HELD_BYTES] + size - rules.stop_bytes
    node = time_buffer.first_due(time, due)
    # rule: expired-make-room
    while node != time_buffer.NONE and (keys > 0 or total > 0):
        keys -= 1
        total -= time.size[time.heap[node]]
        node = time_buffer.next_due(time, node, due)
    # rule: stop-before-bound/keys
    if keys > 0:
        return FULL_KEYS
    # rule: stop-before-bound/bytes
    return FULL_BYTES if total > 0 else DONE


@inlined
def _remember(state: State, keys: FlatRecords, row: int, fingerprint: int) -> Any:
    """Return the new slot of the row's key and timestamp; `~NEEDS_SLOT` or `~NEEDS_ROOM`, which change nothing."""
    if not slots.has_slot(state.pool):
        return ~NEEDS_SLOT
    slot = _new_slot(state)
    if not payloads.store(state.payloads, slot, keys, row):
        slots.give_back(state.pool, slot)
        return ~NEEDS_ROOM
    state.fingerprint[slot] = fingerprint
    time_buffer.push(state.time, slot, keys.timestamp[row], keys.offset[row], wide(keys.key_length[row]))
    hash_index.insert(state.key_index, state.fingerprint, slot)
    _set_check(state, slot, check_of(state, slot))
    return slot


@inlined
def _new_slot(state: State) -> Any:
    """Take a slot without a record; initialize it if it was never used, whatever was in its memory."""
    unused = state.pool.numbers[slots.FREE] == 0
    slot = slots.take(state.pool)
    if unused:
        state.payloads.block[slot] = 0
        state.payloads.checksum[slot] = 0
        state.time.position[slot] = time_buffer.NOT_HELD
    return slot


@inlined
def _forget(state: State, slot: int) -> None:
    """Take the slot out of the order and the index; its key stays stored."""
    time_buffer.remove(state.time, slot)
    hash_index.remove(state.key_index, state.fingerprint, slot)


@inlined
def _free(state: State, slot: int) -> None:
    _set_check(state, slot, wide(0))
    payloads.drop(state.payloads, slot)
    slots.give_back(state.pool, slot)


@inlined
def _set_check(state: State, slot: int, check: int) -> None:
    state.numbers[CHECK] += check - wide(state.payloads.checksum[slot])
    state.payloads.checksum[slot] = check
