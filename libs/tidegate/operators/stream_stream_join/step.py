"""The join's kernels: the effects of a record, an advance, a flush and a changelog row on the records that are held.

All held records are in one time buffer. A record that waits is emitted alone if it finds no partner; its place is the
last stream time at which its window is open. The place of any other record is the last stream time at which a record
that is not late can find it. The records of a key on a side are a ring in the order of time, closed by a link from the
newest to the oldest; the hash index has the newest of each ring.

During a batch, a slot only notes the row of its record (`row`, plus 1); payloads are copied once, when the batch is
settled. A slot that was stored before the batch and leaves in it keeps its block until the batch is settled, because
its record is still to be emitted. A slot that was opened in the batch and leaves in it is free at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels import hash_index, payloads, time_buffer
from tidegate.kernels.columns import AHEAD
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import prefetch
from tidegate.kernels.hash_index import Index
from tidegate.kernels.memory import slots
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, TimeBuffer
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY, Timestamped, Unaccepted

DONE, NEEDS_SLOT, NEEDS_RESULTS, NEEDS_ARENA = range(4)
"""Why a kernel returned: all rows are done, or it needs a slot, room for results, or bytes."""

LISTED, CHANGED = -1, -2
"""The `row` of a touched slot that has no record in the batch. CHANGED: it waited before, and found a partner."""

NONE = -1
"""No slot."""

NO_RECORD = -(2**63)
"""In place of a source: the result has no record of that side."""

MAX = 2**63 - 1

NEXT_ROW, STREAM_TIME, RESULTS, TOUCHED, HELD_MAX, HELD_BYTES_MAX, SETTLED, NEEDED = range(8)
TALLIES = 8
"""Tallies of a batch. NEEDED: for how many results there was no room."""

T, OPENED, WINDOWED, CHECKSUM = range(4)
NUMBERS = 4
"""A state's `numbers`: stream time, 1 if it is initialized, 1 if keys have windows, the sum of all slots' checksums."""

SIDE_BIT = 62
"""The bit of an arrival that is its side; the bits below are the offset, which is smaller than 2^62."""


class Rules(NamedTuple):
    """The configuration as numbers, ms.

    By side, the left one first: `ahead` and `back`, how much later and earlier a partner may be; `open_for`, how long
    after its timestamp a record's window is open; `pads`, whether records are emitted alone. `held_for`: how long after
    its timestamp a record is held. `keyed`: records without a key are rejected on both sides.
    """

    ahead: tuple[int, int]
    back: tuple[int, int]
    open_for: tuple[int, int]
    pads: tuple[bool, bool]
    held_for: int
    keyed: bool


class State(NamedTuple):
    """All arrays of a partition.

    `fingerprint`, `older`, `newer`, `waits`: by slot, of its key, its neighbours in the ring, and whether its record is
    emitted alone if it finds no partner. `row`: see the module. `numbers`: see NUMBERS.
    """

    time: TimeBuffer
    pool: SlotPool
    payloads: Payloads
    key_index: Index
    fingerprint: Array
    older: Array
    newer: Array
    waits: Array
    row: Array
    numbers: Array


class Outcome(NamedTuple):
    """The effects of a batch: results (a source of each side, and the row after which it left), touched slots, late and
    rejected rows, and tallies. There is always room for a result of each held record.
    """

    left: Array
    right: Array
    emitted_after: Array
    touched: Array
    unaccepted: Unaccepted
    tally: Array


@compiled_in_place
def absorb(state: State, dated: Timestamped, port: Array, rules: Rules, outcome: Outcome) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or what the row at tally[NEXT_ROW] needs to be done.

    What is done of that row already is not done twice.
    """
    tally, batch = outcome.tally, dated.batch
    for row in range(tally[NEXT_ROW], len(batch.offset)):
        tally[NEXT_ROW] = row
        side, timestamp = wide(port[row]), batch.timestamp[row]
        code = _verdict(dated, row, side, rules, tally[STREAM_TIME])
        # rule: unaccepted-joins-nothing
        if code != ACCEPTED:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
            if code == TIME_ONLY:
                tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
                release(state, tally[STREAM_TIME], outcome)
        elif batch.key_length[row] < 0:
            if not _has_room(state, outcome, wide(1)):
                return NEEDS_RESULTS
            late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
            _emit_alone(outcome, wide(row), side)
        else:
            signal = _join(state, batch, wide(row), side, rules, outcome)
            if signal != DONE:
                return signal
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _verdict(dated: Timestamped, row: int, side: int, rules: Rules, stream_time: int) -> Any:
    if dated.missing[row] == TIME_ONLY:
        return TIME_ONLY
    if dated.batch.value_length[row] < 0:
        return late_and_rejected.NULL_VALUE
    code = late_and_rejected.bad_timestamp(dated.batch.timestamp[row], dated.missing[row], dated.newest)
    if code != ACCEPTED:
        return code
    if dated.batch.key_length[row] < 0:
        return late_and_rejected.NULL_KEY if rules.keyed or not rules.pads[side] else ACCEPTED
    # rule: late-after-own-window
    return LATE if dated.batch.timestamp[row] + rules.open_for[side] < stream_time else ACCEPTED


@inlined
def _join(state: State, batch: FlatRecords, row: int, side: int, rules: Rules, outcome: Outcome) -> Any:
    """Let time come to the record, join it with its partners in order of time, and hold it; or return what it needs."""
    tally, timestamp = outcome.tally, batch.timestamp[row]
    if not slots.has_slot(state.pool):
        return NEEDS_SLOT
    tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
    # rule: closed-before-joined
    release(state, tally[STREAM_TIME], outcome)
    fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
    newest = wide(state.key_index.places[_place_of_newest(state, batch, row, fingerprint, 1 - side)]) - 1
    # rule: partners-in-window
    low, high = timestamp - rules.back[side], timestamp + rules.ahead[side]
    first, count = wide(NONE), wide(0)
    last = wide(NONE) if newest == NONE else seek(state, newest, high, wide(MAX))
    if last != NONE:
        oldest, at = wide(state.newer[newest]), last
        while state.payloads.timestamp[at] >= low:
            first = at
            count += 1
            if at == oldest:
                break
            at = wide(state.older[at])
    if not _has_room(state, outcome, count):
        return NEEDS_RESULTS
    late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
    for _ in range(count):
        _emit_pair(state, row, side, first, rules, outcome)
        first = wide(state.newer[first])
    hold(state, batch, row, side, rules, rules.pads[side] and count == 0, outcome)
    tally[HELD_MAX] = max(tally[HELD_MAX], state.time.numbers[HELD])
    tally[HELD_BYTES_MAX] = max(tally[HELD_BYTES_MAX], state.time.numbers[HELD_BYTES])
    return DONE


@inlined
def _has_room(state: State, outcome: Outcome, results: int) -> bool:
    """Return True if there is room for so many results, the record of the row, and each record that is held."""
    needed = results + 1 + state.time.numbers[HELD]
    outcome.tally[NEEDED] = needed
    return bool(outcome.tally[RESULTS] + needed <= len(outcome.left))


@inlined
def _emit_pair(state: State, row: int, side: int, slot: int, rules: Rules, outcome: Outcome) -> None:
    """Emit the row with its partner in the slot, which no longer waits."""
    held = _source(state, slot)
    _emit(outcome, held if side == 1 else row, row if side == 1 else held)
    # rule: partner-ends-waiting
    if state.waits[slot]:
        state.waits[slot] = 0
        time_buffer.move(state.time, slot, state.payloads.timestamp[slot] + rules.held_for)
        if state.row[slot] == 0:
            _list(outcome, slot)
            state.row[slot] = CHANGED


@inlined
def release(state: State, stream_time: int, outcome: Outcome) -> None:
    """Let the held records leave whose place stream time has passed, in order; those that wait are emitted alone."""
    # rule: closed-when-passed
    while state.time.numbers[HELD] > 0 and state.time.place[0] < stream_time:
        _leave_first(state, outcome)


@compiled_in_place
def release_until(state: State, outcome: Outcome) -> None:
    """Release what the stream time of the outcome has passed."""
    release(state, outcome.tally[STREAM_TIME], outcome)


@compiled_in_place
def release_all(state: State, outcome: Outcome) -> None:
    """Let all held records leave, in order; those that wait are emitted alone."""
    while state.time.numbers[HELD] > 0:
        _leave_first(state, outcome)


@inlined
def _leave_first(state: State, outcome: Outcome) -> None:
    slot = wide(state.time.heap[0])
    if state.waits[slot]:
        _emit_alone(outcome, _source(state, slot), side_of(state, slot))
    leave(state, slot, outcome)


@inlined
def _source(state: State, slot: int) -> Any:
    """Return where the record of the slot is: its row in the batch, or `~slot`."""
    return wide(state.row[slot]) - 1 if state.row[slot] > 0 else ~wide(slot)


@inlined
def _emit_alone(outcome: Outcome, source: int, side: int) -> None:
    nothing = wide(NO_RECORD)
    _emit(outcome, nothing if side == 1 else source, source if side == 1 else nothing)


@inlined
def _emit(outcome: Outcome, left: int, right: int) -> None:
    at = outcome.tally[RESULTS]
    outcome.left[at] = left
    outcome.right[at] = right
    outcome.emitted_after[at] = outcome.tally[NEXT_ROW]
    outcome.tally[RESULTS] += 1


@inlined
def hold(state: State, batch: FlatRecords, row: int, side: int, rules: Rules, waits: bool, outcome: Outcome) -> None:
    """Hold the row's record in a new slot. There is one: `slots.has_slot`."""
    slot = _new_slot(state)
    if state.row[slot] == 0:
        _list(outcome, slot)
    timestamp, arrival = batch.timestamp[row], arrival_of(side, batch.offset[row])
    state.row[slot] = row + 1
    state.waits[slot] = 1 if waits else 0
    state.payloads.timestamp[slot] = timestamp
    # rule: held-while-found
    place = timestamp + (rules.open_for[side] if waits else rules.held_for)
    time_buffer.push(state.time, slot, place, arrival, payloads.record_length(batch, row))
    state.fingerprint[slot] = hash_index.fingerprint(
        state.key_index, batch.data, batch.key_start[row], batch.key_length[row]
    )
    _enter_ring(state, batch, row, slot, _place_of_newest(state, batch, row, state.fingerprint[slot], side))


@inlined
def _new_slot(state: State) -> Any:
    """Take a slot without a record; initialize it if it was never used, whatever was in its memory."""
    unused = state.pool.numbers[slots.FREE] == 0
    slot = slots.take(state.pool)
    if unused:
        state.row[slot] = 0
        state.payloads.block[slot] = 0
        state.payloads.checksum[slot] = 0
    return slot


@inlined
def _enter_ring(state: State, batch: FlatRecords, row: int, slot: int, place: int) -> None:
    """Put the slot into the ring of its key and side, whose newest slot the index has at that place, if it has any."""
    newest = wide(state.key_index.places[place]) - 1
    if newest == NONE:
        state.older[slot] = slot
        state.newer[slot] = slot
        state.key_index.places[place] = slot + 1
        return
    before = seek(state, newest, batch.timestamp[row], state.time.arrival[slot])
    older = newest if before == NONE else before
    newer = wide(state.newer[older])
    state.older[slot] = older
    state.newer[slot] = newer
    state.newer[older] = slot
    state.older[newer] = slot
    if before == newest:
        state.key_index.places[place] = slot + 1


@inlined
def leave(state: State, slot: int, outcome: Outcome) -> None:
    """Stop holding the slot: free it if it was opened in the batch; otherwise `settle` frees it."""
    _leave_ring(state, slot)
    time_buffer.remove(state.time, slot)
    if state.row[slot] == 0:
        _list(outcome, slot)
        state.row[slot] = LISTED
    if state.payloads.block[slot] == 0:
        slots.give_back(state.pool, slot)


@inlined
def _leave_ring(state: State, slot: int) -> None:
    older, newer = wide(state.older[slot]), wide(state.newer[slot])
    if newer == slot:
        hash_index.remove(state.key_index, state.fingerprint, slot)
        return
    if is_newest(state, slot):
        place = hash_index.home(state.key_index, state.fingerprint[slot])
        while state.key_index.places[place] != slot + 1:
            place = hash_index.next_place(state.key_index, place)
        state.key_index.places[place] = older + 1
    state.newer[older] = newer
    state.older[newer] = older


@inlined
def is_newest(state: State, slot: int) -> bool:
    """Return True if the slot is the newest of its ring: the one behind it is the oldest, or itself."""
    newer = wide(state.newer[slot])
    return not _is_behind(state, newer, state.payloads.timestamp[slot], state.time.arrival[slot])


@inlined
def seek(state: State, newest: int, timestamp: int, arrival: int) -> Any:
    """Return the last slot of the ring that is not behind that time and arrival; NONE if all are.

    It is looked for from both ends, so what is near to one of them is found at once.
    """
    older, newer = wide(state.newer[newest]), newest
    if _is_behind(state, older, timestamp, arrival):
        return wide(NONE)
    while _is_behind(state, newer, timestamp, arrival):
        behind = wide(state.newer[older])
        if _is_behind(state, behind, timestamp, arrival):
            return older
        older = behind
        newer = wide(state.older[newer])
    return newer


@inlined
def _is_behind(state: State, slot: int, timestamp: int, arrival: int) -> bool:
    time = state.payloads.timestamp[slot]
    return bool(time > timestamp or (time == timestamp and state.time.arrival[slot] > arrival))


@inlined
def arrival_of(side: int, offset: int) -> Any:
    """Return the arrival of a record: among equal times, records of the left stream come first."""
    return (wide(side) << SIDE_BIT) | offset


@inlined
def side_of(state: State, slot: int) -> Any:
    """Return the side of a held slot: 0 is left, 1 is right."""
    return state.time.arrival[slot] >> SIDE_BIT


@inlined
def _place_of_newest(state: State, batch: FlatRecords, row: int, fingerprint: int, side: int) -> Any:
    """Return the place in the index of the newest slot of the row's key on that side, or the empty place for it."""
    place = hash_index.home(state.key_index, fingerprint)
    while True:
        place = hash_index.candidate(state.key_index, state.fingerprint, fingerprint, place)
        slot = wide(state.key_index.places[place]) - 1
        if slot == NONE or (side_of(state, slot) == side and _has_key(state, batch, slot, row)):
            return place
        place = hash_index.next_place(state.key_index, place)


@inlined
def _has_key(state: State, batch: FlatRecords, slot: int, row: int) -> bool:
    """Return True if the slot, whose fingerprint is that of the row's key, has the same key."""
    length = batch.key_length[row]
    if hash_index.fingerprint_is_exact(length):
        return True
    other = wide(state.row[slot]) - 1
    if other >= 0:
        same = batch.key_length[other] == length
        return bool(same) and hash_index.same_bytes(
            batch.data, batch.key_start[row], batch.data, batch.key_start[other], length
        )
    start = payloads.start_of(state.payloads, slot)
    same = state.payloads.key_length[slot] == length
    return bool(same) and hash_index.same_bytes(
        batch.data, batch.key_start[row], state.payloads.arena.data, start, length
    )


@inlined
def _list(outcome: Outcome, slot: int) -> None:
    outcome.touched[outcome.tally[TOUCHED]] = slot
    outcome.tally[TOUCHED] += 1


@compiled_in_place
def replay(
    state: State, batch: FlatRecords, port: Array, deleted: Array, waits: Array, rules: Rules, outcome: Outcome
) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or NEEDS_SLOT before the row that needs one."""
    for row in range(outcome.tally[NEXT_ROW], len(batch.offset)):
        outcome.tally[NEXT_ROW] = row
        if not deleted[row] and not slots.has_slot(state.pool):
            return NEEDS_SLOT
        side = wide(port[row])
        slot = _find(state, batch, wide(row), side)
        if slot != NONE:
            leave(state, slot, outcome)
        if not deleted[row]:
            hold(state, batch, wide(row), side, rules, waits[row], outcome)
    outcome.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _find(state: State, batch: FlatRecords, row: int, side: int) -> Any:
    """Return the held slot of the row's record; NONE if it is not held."""
    fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
    newest = wide(state.key_index.places[_place_of_newest(state, batch, row, fingerprint, side)]) - 1
    if newest == NONE:
        return newest
    arrival = arrival_of(side, batch.offset[row])
    found = seek(state, newest, batch.timestamp[row], arrival)
    return found if found != NONE and state.time.arrival[found] == arrival else wide(NONE)


@compiled_in_place
def reindex(state: State) -> None:
    """Rebuild the index, whose length may have changed, from the newest slots of all rings."""
    state.key_index.places[:] = 0
    for slot in range(state.pool.numbers[slots.USED]):
        if time_buffer.is_held(state.time, slot) and is_newest(state, slot):
            hash_index.insert(state.key_index, state.fingerprint, slot)


@compiled_in_place
def settle(state: State, batch: FlatRecords, outcome: Outcome) -> Any:
    """Store payloads of touched held slots, free those that left; return DONE or NEEDS_ARENA (call again)."""
    for at in range(outcome.tally[SETTLED], outcome.tally[TOUCHED]):
        outcome.tally[SETTLED] = at
        _prefetch_ahead(state, batch, outcome, at)
        slot = wide(outcome.touched[at])
        if time_buffer.is_held(state.time, slot):
            if state.row[slot] > 0 and not payloads.store(state.payloads, slot, batch, wide(state.row[slot]) - 1):
                return NEEDS_ARENA
            payloads.set_checksum(state.payloads, slot, checksum_of(state, slot), state.numbers, CHECKSUM)
        elif state.payloads.block[slot] != 0:
            payloads.forget(state.payloads, slot, state.numbers, CHECKSUM)
            slots.give_back(state.pool, slot)
        state.row[slot] = 0
    return DONE


@inlined
def _prefetch_ahead(state: State, batch: FlatRecords, outcome: Outcome, at: int) -> None:
    row = wide(state.row[outcome.touched[min(at + AHEAD, outcome.tally[TOUCHED] - 1)]]) - 1
    if row >= 0:
        prefetch(batch.data, batch.key_start[row])
        prefetch(batch.data, batch.value_start[row])


@inlined
def checksum_of(state: State, slot: int) -> Any:
    """Return a 32-bit checksum of the slot: its stored record, its key's fingerprint, its place and arrival."""
    seed = hash_index.mix(state.fingerprint[slot] ^ hash_index.mix(time_buffer.place_of(state.time, slot)))
    seed = hash_index.mix(seed ^ state.time.arrival[slot]) ^ wide(state.waits[slot])
    return payloads.content_hash(state.payloads, slot, seed) & 0xFFFFFFFF
