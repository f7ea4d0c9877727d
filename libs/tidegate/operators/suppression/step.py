"""Suppression's kernels: the effects of a record, an advance, a flush and a changelog row on the buffer.

During a batch, a slot only notes the row of its newest record (`row`, plus 1). Payloads are copied once, when the batch
is settled. A slot that was stored before the batch and is removed in it stays in the index as a *ghost* (it has a
block, but is not held) until the batch is settled. If its key comes back in the batch, the slot is held again, and the
changelog gets one `put` and no `delete`. A slot that was opened and removed in the same batch is free at once. Every
slot whose `row` is not 0 is in the list of touched slots, so settling needs to visit no others.

A flush closes windows before their grace has passed. Until it has, a *closed* window stays in its slot, so that no
record gives the window a second result. It has only its key, counts against no bound, and stores `~arrival`, which is
< 0, as its arrival.
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
from tidegate.operators.suppression import oldest

CAUSES = ("time", "keys", "bytes", "flush", "idle", "window_close")
TIME, KEYS, BYTES, FLUSH, IDLE, WINDOW_CLOSE = range(6)

DONE, NEEDS_SLOT, FULL_KEYS, FULL_BYTES, NEEDS_ARENA = range(5)
"""Why a kernel returned: all rows are done, it needs a slot or bytes, or a row would exceed a bound of `shut_down`."""

NEVER = -1
"""A due time at which no slot is due: every place is larger."""

LISTED = -1
"""The `row` of a touched slot that has no record in the batch."""

MAX = 2**63 - 1
"""No bound."""

NEXT_ROW, STREAM_TIME, EMITTED, TOUCHED, APPLIED, SUPERSEDED = range(6)
OVERTIME_SUM, OVERTIME_MIN, OVERTIME_COUNT, HELD_MAX, HELD_BYTES_MAX, SETTLED = range(6, 12)
TALLIES = 12


NUMBERS, CLOSED, CHECKSUM = 6, 4, 5
"""The number of a state's `numbers`, and the indexes of the last two: the count of closed windows, and the sum of the
checksums of all slots."""


class Rules(NamedTuple):
    """The configuration as numbers: -1 for no time limit or no `max_lateness`, MAX for no bound of the buffer.

    `closes`: True with `until: window_close`; then places are window ends, and the time limit is the windows' grace.
    """

    time_limit: int
    evict_keys: int
    evict_bytes: int
    stop_keys: int
    stop_bytes: int
    last_update: bool
    bytes_of_record: bool
    max_lateness: int
    closes: bool


class State(NamedTuple):
    """All arrays of a partition's state. `numbers`: see CLOSED and CHECKSUM. `oldest`: see the module of that name."""

    time: TimeBuffer
    pool: SlotPool
    payloads: Payloads
    key_index: Index
    fingerprint: Array
    row: Array
    numbers: Array
    oldest: Array


class Outcome(NamedTuple):
    """The effects of a batch: emissions (source, cause), touched slots, late and rejected rows, and the tallies.

    `emitted_after` and `emitted_place`: per emission the row after which it left, and the place that it had.

    `place_before` and `arrival_before`: per touched slot that was held before the batch, its place and arrival then.
    """

    emitted: Array
    cause: Array
    emitted_after: Array
    emitted_place: Array
    touched: Array
    place_before: Array
    arrival_before: Array
    unaccepted: Unaccepted
    tally: Array


@compiled_in_place
def absorb(
    state: State, batch: FlatRecords, places: Array, missing: Array, newest: int, rules: Rules, outcome: Outcome
) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or why it stopped before the row at tally[NEXT_ROW].

    `places`: the place that each row would have in the order of eviction. `missing`: a code per row, 0 where
    nothing is missing. `newest`: the largest timestamp that is accepted.
    """
    tally = outcome.tally
    cause = wide(WINDOW_CLOSE if rules.closes else TIME)
    evict(state, due_until(rules.time_limit, tally[STREAM_TIME]), cause, rules, outcome)  # acts under new rules only
    for row in range(tally[NEXT_ROW], len(batch.offset)):
        tally[NEXT_ROW] = row
        timestamp = batch.timestamp[row]
        code = _verdict(batch, row, places[row], missing[row], newest, rules, tally[STREAM_TIME])
        if code != ACCEPTED:
            late_and_rejected.note(outcome.unaccepted, row, code, timestamp, tally[STREAM_TIME])
            if code == TIME_ONLY:
                tally[STREAM_TIME] = max(tally[STREAM_TIME], timestamp)
                evict(state, due_until(rules.time_limit, tally[STREAM_TIME]), cause, rules, outcome)
            continue
        stream_time = max(tally[STREAM_TIME], timestamp)
        due = due_until(rules.time_limit, stream_time)
        fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
        slot = _find(state, batch, row, fingerprint)
        # rule: flushed-window-closed/absorb
        if slot >= 0 and is_closed(state, slot):
            late_and_rejected.note(outcome.unaccepted, row, wide(LATE), timestamp, tally[STREAM_TIME])
            continue
        full = _full(state, batch, row, slot, places[row], due, rules)
        if full != DONE:
            return full
        if slot < 0 and not slots.has_slot(state.pool):
            return NEEDS_SLOT
        tally[STREAM_TIME] = stream_time
        late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, stream_time)
        _insert_or_update(state, batch, row, slot, fingerprint, places[row], rules, outcome)
        evict(state, due, cause, rules, outcome)
        _observe_size(tally, state)
    tally[NEXT_ROW] = len(batch.offset)
    return DONE


@inlined
def _verdict(
    batch: FlatRecords, row: int, place: int, missing: int, newest: int, rules: Rules, stream_time: int
) -> Any:
    timestamp = batch.timestamp[row]
    if batch.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    code = late_and_rejected.bad_timestamp(timestamp, missing, newest)
    if code != ACCEPTED:
        return code
    if rules.closes:
        return LATE if place <= stream_time - rules.time_limit else ACCEPTED
    return LATE if rules.max_lateness >= 0 and timestamp < stream_time - rules.max_lateness else ACCEPTED


@inlined
def _full(state: State, batch: FlatRecords, row: int, slot: int, place: int, due: int, rules: Rules) -> Any:
    """Return DONE, or the bound of `shut_down` that this record would exceed even after the evictions by time.

    `slot`: the slot of the record's key, -1 if it has none. `place`: the place that the record would have. Visits only
    slots that are due, and only if the record would exceed a bound before the evictions.
    """
    if rules.stop_keys == MAX and rules.stop_bytes == MAX:
        return DONE
    held = slot >= 0 and time_buffer.is_held(state.time, slot)
    size = _record_size(batch, row, rules)
    keys = state.time.numbers[HELD] - state.numbers[CLOSED]
    total = state.time.numbers[HELD_BYTES]
    if held:
        total += size - state.time.size[slot]
    else:
        keys += 1
        total += size
    if keys <= rules.stop_keys and total <= rules.stop_bytes:
        return DONE
    if held and not rules.last_update:
        place = time_buffer.place_of(state.time, slot)
    if place <= due:
        keys -= 1
        total -= size
    due_keys, due_bytes = _due_besides(state.time, slot, due)
    if keys - due_keys > rules.stop_keys:
        return FULL_KEYS
    if total - due_bytes > rules.stop_bytes:
        return FULL_BYTES
    return DONE


@inlined
def _due_besides(time: TimeBuffer, slot: int, due: int) -> Any:
    """Return the number and the bytes of due slots other than this one; closed windows do not count."""
    keys, total = 0, 0
    node = time_buffer.first_due(time, due)
    while node != time_buffer.NONE:
        if time.heap[node] != slot and time.arrival[time.heap[node]] >= 0:
            keys += 1
            total += time.size[time.heap[node]]
        node = time_buffer.next_due(time, node, due)
    return keys, total


@inlined
def _insert_or_update(
    state: State, batch: FlatRecords, row: int, slot: int, fingerprint: int, place: int, rules: Rules, outcome: Outcome
) -> None:
    if slot < 0 or not time_buffer.is_held(state.time, slot):
        outcome.tally[APPLIED] += 1
        _hold(state, batch, row, slot, fingerprint, place, batch.offset[row], rules, outcome)
        return
    outcome.tally[SUPERSEDED] += 1
    time_buffer.resize(state.time, slot, _record_size(batch, row, rules))
    _touch(state, slot, row, outcome)
    if rules.last_update and time_buffer.place_of(state.time, slot) != place:
        time_buffer.move(state.time, slot, place)


@inlined
def due_until(time_limit: int, stream_time: int) -> Any:
    """Return the largest place that is due at this stream time; NEVER without a time limit."""
    return stream_time - time_limit if time_limit >= 0 else NEVER


@inlined
def evict(state: State, due: int, cause_of_due: int, rules: Rules, outcome: Outcome) -> None:
    """Emit the oldest slots while they are due, or while keys or bytes exceed a bound.

    A closed window that is due is removed without an emission.
    """
    numbers = state.time.numbers
    while numbers[HELD] > 0:
        slot = wide(state.time.heap[0])
        place = state.time.place[0]
        if place <= due:
            if is_closed(state, slot):
                _leave(state, slot, outcome)
                continue
            cause = cause_of_due
            if cause != FLUSH:
                _observe_overtime(outcome.tally, due - place)
        elif numbers[HELD] > rules.evict_keys:
            cause = KEYS
        elif numbers[HELD_BYTES] > rules.evict_bytes:
            cause = BYTES
        else:
            return
        _emit(state, slot, cause, outcome)


@compiled_in_place
def close(state: State, windows: Array, keys: FlatRecords, rules: Rules, outcome: Outcome) -> None:
    """Emit the results of these windows with cause `flush`, and keep the windows as closed.

    `windows`: slots. `keys`: a row per slot with the key and nothing else.
    """
    for row in range(len(windows)):
        slot = wide(windows[row])
        place = time_buffer.place_of(state.time, slot)
        # rule: flushed-window-closed/close
        arrival = ~state.time.arrival[slot]
        _emit(state, slot, wide(FLUSH), outcome)
        _hold(state, keys, row, slot, state.fingerprint[slot], place, arrival, rules, outcome)


@inlined
def is_closed(state: State, slot: int) -> bool:
    """Return True if the slot holds a window whose final result was emitted."""
    return bool(time_buffer.is_held(state.time, slot) and state.time.arrival[slot] < 0)


@compiled_in_place
def replay(
    state: State, batch: FlatRecords, deleted: Array, places: Array, arrivals: Array, rules: Rules, out: Outcome
) -> Any:
    """Apply the changelog rows from tally[NEXT_ROW] on; return DONE, or NEEDS_SLOT before the row that needs one."""
    for row in range(out.tally[NEXT_ROW], len(batch.offset)):
        out.tally[NEXT_ROW] = row
        fingerprint = hash_index.fingerprint(state.key_index, batch.data, batch.key_start[row], batch.key_length[row])
        slot = _find(state, batch, row, fingerprint)
        if slot < 0 and not deleted[row] and not slots.has_slot(state.pool):
            return NEEDS_SLOT
        if slot >= 0 and time_buffer.is_held(state.time, slot):
            _leave(state, slot, out)
            slot = _find(state, batch, row, fingerprint)
        if not deleted[row]:
            _hold(state, batch, row, slot, fingerprint, places[row], arrivals[row], rules, out)
    out.tally[NEXT_ROW] = len(batch.offset)
    return DONE


@compiled_in_place
def forget_tombstones(state: State, batch: FlatRecords, outcome: Outcome) -> None:
    """Remove emissions without a value: a window's null retracts a result that was never emitted."""
    kept = 0
    for at in range(outcome.tally[EMITTED]):
        source = outcome.emitted[at]
        length = batch.value_length[source] if source >= 0 else wide(state.payloads.value_length[~source])
        if length >= 0:
            outcome.emitted[kept] = source
            outcome.cause[kept] = outcome.cause[at]
            outcome.emitted_after[kept] = outcome.emitted_after[at]
            outcome.emitted_place[kept] = outcome.emitted_place[at]
            kept += 1
    outcome.tally[EMITTED] = kept


@inlined
def _hold(
    state: State,
    batch: FlatRecords,
    row: int,
    slot: int,
    fingerprint: int,
    place: int,
    arrival: int,
    rules: Rules,
    out: Outcome,
) -> None:
    """Hold the row's record at that place: in a new slot, or in `slot` if it is a ghost whose key comes back."""
    if slot < 0:
        slot = _new_slot(state)
        state.fingerprint[slot] = fingerprint
        hash_index.insert(state.key_index, state.fingerprint, slot)
    _touch(state, slot, row, out)
    closed = arrival < 0
    state.numbers[CLOSED] += closed
    time_buffer.push(state.time, slot, place, arrival, 0 if closed else _record_size(batch, row, rules))


@inlined
def _leave(state: State, slot: int, outcome: Outcome) -> None:
    """Stop holding the slot: make it a ghost if it was stored before the batch, free it if it was opened in it."""
    if state.row[slot] == 0:
        _list(state.time, slot, outcome)
        state.row[slot] = LISTED
    time_buffer.remove(state.time, slot)
    state.numbers[CLOSED] -= state.time.arrival[slot] < 0
    if state.payloads.block[slot] == 0:
        _free(state, slot)


@inlined
def _emit(state: State, slot: int, cause: int, outcome: Outcome) -> None:
    at = outcome.tally[EMITTED]
    outcome.emitted[at] = wide(state.row[slot]) - 1 if state.row[slot] != 0 else ~slot
    outcome.cause[at] = cause
    outcome.emitted_after[at] = outcome.tally[NEXT_ROW]
    outcome.emitted_place[at] = time_buffer.place_of(state.time, slot)
    outcome.tally[EMITTED] += 1
    _leave(state, slot, outcome)


@inlined
def _touch(state: State, slot: int, row: int, outcome: Outcome) -> None:
    """Note the row as the slot's newest record, and list the slot as touched if it is not yet."""
    if state.row[slot] == 0:
        _list(state.time, slot, outcome)
    state.row[slot] = row + 1


@inlined
def _list(time: TimeBuffer, slot: int, outcome: Outcome) -> None:
    """List the slot as touched, with its place and arrival if it is held: the time buffer forgets them on removal."""
    at = outcome.tally[TOUCHED]
    outcome.touched[at] = slot
    if time_buffer.is_held(time, slot):
        outcome.place_before[at] = time_buffer.place_of(time, slot)
        outcome.arrival_before[at] = time.arrival[slot]
    outcome.tally[TOUCHED] += 1


@inlined
def _new_slot(state: State) -> Any:
    """Take a slot without a record; initialize it if it was never used, whatever was in its memory."""
    unused = state.pool.numbers[slots.FREE] == 0
    slot = slots.take(state.pool)
    if unused:
        state.row[slot] = 0
        state.payloads.block[slot] = 0
        state.payloads.checksum[slot] = 0
        state.time.position[slot] = time_buffer.NOT_HELD
    return slot


@inlined
def _free(state: State, slot: int) -> None:
    hash_index.remove(state.key_index, state.fingerprint, slot)
    slots.give_back(state.pool, slot)


@inlined
def _find(state: State, batch: FlatRecords, row: int, fingerprint: int) -> Any:
    """Return the slot of the row's key, held or a ghost; -1 if the key has none."""
    place = hash_index.home(state.key_index, fingerprint)
    while True:
        place = hash_index.candidate(state.key_index, state.fingerprint, fingerprint, place)
        slot = wide(state.key_index.places[place]) - 1
        if slot < 0 or _has_key(state, batch, slot, row):
            return slot
        place = hash_index.next_place(state.key_index, place)


@inlined
def _has_key(state: State, batch: FlatRecords, slot: int, row: int) -> bool:
    """Return True if the slot, whose fingerprint is that of the row's key, has the same key."""
    start = batch.key_start[row]
    length = batch.key_length[row]
    if hash_index.fingerprint_is_exact(length):
        return True
    if state.payloads.block[slot] != 0:
        if state.payloads.key_length[slot] != length:
            return False
        data = state.payloads.arena.data
        return hash_index.same_bytes(batch.data, start, data, payloads.start_of(state.payloads, slot), length)
    own = wide(state.row[slot]) - 1
    if batch.key_length[own] != length:
        return False
    return hash_index.same_bytes(batch.data, start, batch.data, batch.key_start[own], length)


@inlined
def _record_size(batch: FlatRecords, row: int, rules: Rules) -> Any:
    if rules.bytes_of_record:
        return payloads.record_length(batch, row)
    return max(0, batch.value_length[row])


@inlined
def stored_size(state: State, slot: int, bytes_of_record: bool) -> Any:
    """Return the bytes of a held slot's stored record that count; 0 for a closed window."""
    if state.time.arrival[slot] < 0:
        return wide(0)
    if bytes_of_record:
        return payloads.payload_length(state.payloads, slot)
    return max(0, state.payloads.value_length[slot])


@compiled_in_place
def settle(state: State, batch: FlatRecords, outcome: Outcome) -> Any:
    """Store the payloads of touched held slots, free ghosts; return DONE, or NEEDS_ARENA (then call again)."""
    for at in range(outcome.tally[SETTLED], outcome.tally[TOUCHED]):
        outcome.tally[SETTLED] = at
        slot = wide(outcome.touched[at])
        if time_buffer.is_held(state.time, slot):
            if not payloads.store(state.payloads, slot, batch, wide(state.row[slot]) - 1):
                return NEEDS_ARENA
            payloads.set_checksum(state.payloads, slot, checksum_of(state, slot), state.numbers, CHECKSUM)
        elif state.payloads.block[slot] != 0:
            payloads.forget(state.payloads, slot, state.numbers, CHECKSUM)
            _free(state, slot)
        state.row[slot] = 0
        is_open = time_buffer.is_held(state.time, slot) and not is_closed(state, slot)
        oldest.note(state.oldest, wide(state.payloads.timestamp[slot]) if is_open else oldest.NONE)
    oldest.seal(state.oldest)
    return DONE


@inlined
def checksum_of(state: State, slot: int) -> Any:
    """Return a 32-bit checksum of the slot: its stored record, fingerprint, arrival and place."""
    seed = hash_index.mix(state.fingerprint[slot] ^ state.time.arrival[slot])
    seed = hash_index.mix(seed ^ time_buffer.place_of(state.time, slot))
    return payloads.content_hash(state.payloads, slot, seed) & 0xFFFFFFFF


@compiled_in_place
def reindex(state: State) -> None:
    """Rebuild the index, whose length may have changed, from all slots that are held or ghosts."""
    state.key_index.places[:] = 0
    for slot in range(state.pool.numbers[slots.USED]):
        if time_buffer.is_held(state.time, slot) or state.payloads.block[slot] != 0:
            hash_index.insert(state.key_index, state.fingerprint, slot)


@compiled_in_place
def recount(state: State, rules: Rules) -> None:
    """Recount the bytes held, as `bytes_of_record` says; to be called only between batches."""
    total = 0
    for node in range(state.time.numbers[HELD]):
        slot = wide(state.time.heap[node])
        state.time.size[slot] = stored_size(state, slot, rules.bytes_of_record)
        total += state.time.size[slot]
    state.time.numbers[HELD_BYTES] = total


@inlined
def _observe_overtime(tally: Array, overtime: int) -> None:
    late_and_rejected.add(tally, OVERTIME_SUM, overtime)
    tally[OVERTIME_MIN] = min(tally[OVERTIME_MIN], overtime)
    tally[OVERTIME_COUNT] += 1


@inlined
def _observe_size(tally: Array, state: State) -> None:
    tally[HELD_MAX] = max(tally[HELD_MAX], state.time.numbers[HELD] - state.numbers[CLOSED])
    tally[HELD_BYTES_MAX] = max(tally[HELD_BYTES_MAX], state.time.numbers[HELD_BYTES])
