"""Kernels of windows with elements: the effect of a record, an advance or a flush.

Values are computed, and functions remove elements, in rounds between two calls of the kernel. The kernel returns for a
round when a window that waits for its removals would fire again, and when the lists grow too long. The next call goes
on where the last one returned.
"""

from __future__ import annotations

from typing import Any

from tidegate.contracts.operator import Array
from tidegate.kernels import payloads, time_buffer, touched
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.memory import arena
from tidegate.kernels.payloads import FlatRecords
from tidegate.kernels.time_buffer import HELD
from tidegate.kernels.touched import OPENED, STORED
from tidegate.kernels.windows import DONE, NEEDS_ARENA
from tidegate.operators import late_and_rejected
from tidegate.operators.late_and_rejected import ACCEPTED, LATE, TIME_ONLY
from tidegate.operators.windowed_aggregation import bookkeeping, sessions, step
from tidegate.operators.windowed_aggregation.aggregates import Numbers
from tidegate.operators.windowed_aggregation.bookkeeping import OPEN, OPEN_BYTES
from tidegate.operators.windowed_aggregation.elements import recording, store
from tidegate.operators.windowed_aggregation.elements.merging import add_to_session
from tidegate.operators.windowed_aggregation.elements.recording import (
    ELEMENTS_TOUCHED,
    KEPT,
    LISTED,
    LISTED_BYTES,
    ROUND,
    Outcome,
    Rows,
    State,
    Trigger,
)
from tidegate.operators.windowed_aggregation.elements.store import NONE
from tidegate.operators.windowed_aggregation.step import (
    APPLIED,
    EMITTED_COUNT,
    FLUSH,
    FULL_LENGTH,
    IDLE,
    NEEDED,
    NEXT_RECORD,
    NEXT_ROW,
    NEXT_START,
    ON_TIME,
    OPEN_BYTES_MAX,
    OPEN_MAX,
    STOP,
    STREAM_TIME,
    TOUCHED,
    WINDOW_BYTES,
    WINDOW_CLOSE,
)
from tidegate.operators.windowed_aggregation.window_times import (
    CLOSED,
    FINAL,
    MAX,
    ON_TIME_FIRST,
    PENDING,
    SESSION,
    Rules,
    end_of,
    expires_next,
    find_key,
    find_span,
    first_start,
    is_open,
    windows_from,
)

RECORD_JOINED = -2
"""In NEXT_START: the row's record is in its windows, and time has yet to pass."""


@compiled_in_place
def absorb(state: State, rows: Rows, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process the rows from tally[NEXT_ROW] on; return DONE, or a signal if it stopped before they were processed."""
    tally = outcome.tally
    if tally[NEXT_START] == NEXT_RECORD:  # only new rules can make something due before a record
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        if lacking != DONE:
            return lacking
    for row in range(tally[NEXT_ROW], len(rows.advances_to)):
        tally[NEXT_ROW] = row
        key = find_key(state.windows, rows.keys, row)
        if tally[NEXT_START] == NEXT_RECORD:
            code = _verdict(state, rows, row, key, rules, trigger, outcome)
            if code > STOP:
                return code - STOP
            if code != ACCEPTED:
                late_and_rejected.note(outcome.unaccepted, row, code, rows.values.timestamp[row], tally[STREAM_TIME])
                continue
            tally[STREAM_TIME] = max(tally[STREAM_TIME], rows.advances_to[row])
            tally[NEXT_START] = 0
        if tally[NEXT_START] != RECORD_JOINED:
            lacking = _add_to_windows(state, rows, row, key, rules, trigger, outcome)
            if lacking != DONE:
                return lacking
            tally[NEXT_START] = RECORD_JOINED
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        if lacking != DONE:
            return lacking
        _count(state, rows.values.timestamp[row], outcome)
        tally[NEXT_START] = NEXT_RECORD
    tally[NEXT_ROW] = len(rows.advances_to)
    return DONE


@inlined
def _verdict(state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Return ACCEPTED, LATE, the code of why the record is rejected, or a signal + STOP.

    The signal is the bound that is reached, or what a window lacks to fire. A row that only passes its time on does so.
    """
    if rows.keys.key_length[row] < 0:
        return late_and_rejected.NULL_KEY
    timestamp = rows.values.timestamp[row]
    code = late_and_rejected.bad_timestamp(timestamp, rows.missing[row], rows.newest)
    if code == TIME_ONLY:
        outcome.tally[STREAM_TIME] = max(outcome.tally[STREAM_TIME], rows.advances_to[row])
        lacking = pass_time(state, wide(ON_TIME), wide(WINDOW_CLOSE), rules, trigger, outcome)
        return TIME_ONLY if lacking == DONE else lacking + STOP
    if code != ACCEPTED:
        return code
    stream_time = max(outcome.tally[STREAM_TIME], rows.advances_to[row])
    if rules.kind == SESSION:
        is_taken, fresh, _ = sessions.effects(state, timestamp, key, stream_time, rules)
        taking = wide(is_taken)
    else:
        taking, fresh = bookkeeping.effects_on_spans(state, timestamp, key, stream_time, rules)
    if not taking:
        return LATE
    if rules.stop_length != MAX and sessions.length(state, timestamp, key, rules) > rules.stop_length:
        return FULL_LENGTH + STOP
    more = fresh * (rows.keys.key_length[row] + WINDOW_BYTES) + taking * store.size_of(rows.values.value_length[row])
    full = _full(state, fresh, more, stream_time, rules)
    return ACCEPTED if full == DONE else full + STOP


@inlined
def _full(state: State, fresh: int, more: int, stream_time: int, rules: Rules) -> Any:
    """Return DONE, or the bound that so many more windows and bytes would exceed.

    Open windows that are due do not count: they close first.
    """
    if not bookkeeping.is_bounded(rules):
        return DONE
    closing, closing_bytes = _closing(state, stream_time)
    return bookkeeping.bound_reached(state, fresh - closing, more - closing_bytes, rules)


@inlined
def _closing(state: State, stream_time: int) -> Any:
    """Return the number of open windows that are due, and their bytes with those of their elements."""
    order = state.windows.order
    closing = 0
    total = wide(0)
    node = bookkeeping.first_closing(state, stream_time)
    while node != time_buffer.NONE:
        slot = wide(order.heap[node])
        closing += 1
        total += order.size[slot] + state.content.bytes[slot]
        node = bookkeeping.next_closing(state, node, stream_time)
    return closing, total


@inlined
def _add_to_windows(
    state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome
) -> Any:
    """Add the row's record to its windows, from where the last call stopped on; return DONE or what is lacking."""
    if rules.kind == SESSION:
        return add_to_session(state, rows, row, key, rules, trigger, outcome)
    return _add_to_spans(state, rows, row, key, rules, trigger, outcome)


@inlined
def _add_to_spans(
    state: State, rows: Rows, row: int, key: int, rules: Rules, trigger: Trigger, outcome: Outcome
) -> Any:
    """Add the row's record to each window that takes it, from tally[NEXT_START] on; return DONE or what is lacking."""
    tally = outcome.tally
    timestamp = rows.values.timestamp[row]
    first = max(first_start(timestamp, rules), tally[NEXT_START])
    for hop in range(windows_from(first, timestamp, rules)):
        start = first + hop * rules.advance
        end = end_of(start, rules)
        if not is_open(end, tally[STREAM_TIME], rules):
            continue
        slot = find_span(state.windows, key, start)
        if slot != NONE and state.windows.phase[slot] == CLOSED:
            continue
        since = wide(0) if slot == NONE else state.content.since[slot]
        fires = recording.fires_with(since, rules, trigger)
        lacking = _missing_room(state, rows, row, key, slot, start, fires, outcome)
        if lacking != DONE:
            tally[NEXT_START] = start
            return lacking
        if slot == NONE:
            slot = recording.open_window(state, rows.keys, row, key, start, start, end, outcome)
            key = wide(state.windows.key[slot])
        recording.take(state, slot, rows, row, timestamp, fires, rules, trigger, outcome)
    return DONE


@compiled_in_place
def remove_chosen(state: State, chosen: Array, outcome: Outcome) -> None:
    """Remove those elements, unless they are removed already."""
    for at in range(len(chosen)):
        element = wide(chosen[at])
        if state.elements.status[element] == STORED or state.elements.status[element] == OPENED:
            recording.remove_element(state, element, outcome)


@compiled_in_place
def list_elements(state: State, windows: Array, listed: Array) -> None:
    """List the elements of those windows, one window after the other, each in order of arrival."""
    at = 0
    for window in range(len(windows)):
        element = wide(state.content.first[windows[window]])
        while element != NONE:
            listed[at] = element
            at += 1
            element = wide(state.elements.after[element])


@compiled_in_place
def replace_elements(state: State, merged: FlatRecords, windows: Array, numbers: Numbers, outcome: Outcome) -> Any:
    """Put the values of the rows from tally[KEPT] on in place of all elements of those windows, one for each window.

    Returns DONE or what lacks room.
    """
    for row in range(outcome.tally[KEPT], len(windows)):
        outcome.tally[KEPT] = row
        lacking = recording.missing_room_for_element(state, merged, row, outcome)
        if lacking != DONE:
            return lacking
        slot = wide(windows[row])
        recording.empty(state, slot, outcome)
        recording.add_element(state, slot, merged, row, numbers, outcome)
    outcome.tally[KEPT] = 0
    return DONE


@compiled_in_place
def end_round(state: State, outcome: Outcome) -> None:
    """End the round: every firing has its value, and no window waits for its removals."""
    tally = outcome.tally
    for at in range(tally[ROUND], tally[EMITTED_COUNT]):
        state.content.eviction_pending[outcome.slot[at]] = 0
    tally[ROUND] = tally[EMITTED_COUNT]
    tally[LISTED] = 0
    tally[LISTED_BYTES] = 0


@inlined
def pass_time(state: State, on_time: int, on_close: int, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process all events due at tally[STREAM_TIME]: windows fire with these causes, close and expire.

    Returns DONE, or why a window cannot fire yet.
    """
    order, stream_time = state.windows.order, outcome.tally[STREAM_TIME]
    while order.numbers[HELD] > 0 and order.place[0] <= stream_time:
        slot = wide(order.heap[0])
        phase = state.windows.phase[slot]
        if expires_next(phase, rules):
            recording.empty(state, slot, outcome)
            recording.remove(state, slot, rules, outcome)
            continue
        ends = phase == PENDING and rules.emit == ON_TIME_FIRST
        if ends or rules.emit == FINAL:
            lacking = recording.cannot_fire(state, slot, wide(0), wide(0), outcome)
            if lacking != DONE:
                return lacking
        recording.touch(state, slot, outcome)
        if ends or rules.emit == FINAL:
            if not ends:
                step.observe_overtime(outcome.tally, stream_time - order.place[0])
            recording.fire(state, slot, on_time if ends else on_close, trigger, outcome)
        if ends:
            bookkeeping.reschedule(state, slot, rules)
        else:
            _close(state, slot, rules, outcome)
    return DONE


@inlined
def _close(state: State, slot: int, rules: Rules, outcome: Outcome) -> None:
    """Close the open window and drop its elements: it takes no more records."""
    recording.empty(state, slot, outcome)
    state.content.since[slot] = 0
    state.windows.phase[slot] = CLOSED
    bookkeeping.count_closed(state, slot)
    if rules.kind == SESSION:
        sessions.move_to_closed(state, slot)
    bookkeeping.reschedule(state, slot, rules)


@compiled_in_place
def advance(state: State, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Process all events due at tally[STREAM_TIME], with cause `idle`; return DONE, or why a window cannot fire yet."""
    return pass_time(state, wide(IDLE), wide(IDLE), rules, trigger, outcome)


@compiled_in_place
def flush(state: State, pending: Array, rules: Rules, trigger: Trigger, outcome: Outcome) -> Any:
    """Fire those windows, from tally[NEXT_ROW] on; with final results, close them. Returns DONE or what is lacking."""
    for at in range(outcome.tally[NEXT_ROW], len(pending)):
        outcome.tally[NEXT_ROW] = at
        slot = wide(pending[at])
        lacking = recording.cannot_fire(state, slot, wide(0), wide(0), outcome)
        if lacking != DONE:
            return lacking
        recording.touch(state, slot, outcome)
        recording.fire(state, slot, wide(FLUSH), trigger, outcome)
        if rules.emit == FINAL:
            _close(state, slot, rules, outcome)
        else:
            bookkeeping.reschedule(state, slot, rules)
    outcome.tally[NEXT_ROW] = 0
    return DONE


@inlined
def _missing_room(
    state: State, rows: Rows, row: int, key: int, slot: int, start: int, fires: bool, outcome: Outcome
) -> Any:
    """Return DONE, or what is lacking for the window to take the row's record and to fire. NONE: a new window."""
    lacking = recording.missing_room_for_element(state, rows.values, row, outcome)
    size = store.size_of(rows.values.value_length[row])
    if slot != NONE:
        if lacking == DONE and fires:
            lacking = recording.cannot_fire(state, slot, wide(1), size, outcome)
        return lacking
    if lacking == DONE:
        at = bookkeeping.entry_for(state.windows, key, start)
        lacking = bookkeeping.missing_room(state, rows.keys, row, key, at, outcome.tally, NEEDED)
    if lacking == DONE and fires:
        lacking = recording.cannot_list(wide(1), size, wide(1), outcome)
    return lacking


@inlined
def _count(state: State, timestamp: int, outcome: Outcome) -> None:
    tally = outcome.tally
    tally[APPLIED] += 1
    late_and_rejected.observe_lateness(outcome.unaccepted, timestamp, tally[STREAM_TIME])
    tally[OPEN_MAX] = max(tally[OPEN_MAX], state.numbers[OPEN])
    tally[OPEN_BYTES_MAX] = max(tally[OPEN_BYTES_MAX], state.numbers[OPEN_BYTES])


@compiled_in_place
def keep_values(state: State, results: FlatRecords, slots: Array, outcome: Outcome) -> Any:
    """Store the values of the rows from tally[KEPT] on as the last values of those windows.

    Returns DONE or what lacks room.
    """
    for row in range(outcome.tally[KEPT], len(slots)):
        outcome.tally[KEPT] = row
        lacking = store_window(state, wide(slots[row]), results, row, outcome)
        if lacking != DONE:
            return lacking
    outcome.tally[KEPT] = 0
    return DONE


@inlined
def store_window(state: State, slot: int, whole: FlatRecords, row: int, outcome: Outcome) -> Any:
    """Store the row's key and value in the window's slot, whose times stay; return DONE or what lacks room."""
    stored = state.windows.versions.payloads
    length = payloads.record_length(whole, row)
    outcome.tally[NEEDED] = length
    if not arena.has_room(stored.arena, length):
        return NEEDS_ARENA
    timestamp, offset = stored.timestamp[slot], stored.offset[slot]
    payloads.store(stored, slot, whole, row)
    stored.timestamp[slot] = timestamp
    stored.offset[slot] = offset
    return DONE


@compiled_in_place
def settle(state: State, outcome: Outcome) -> None:
    """Mark all touched windows and elements as stored, or free the slots of those that were removed."""
    for at in range(outcome.tally[ELEMENTS_TOUCHED]):
        element = wide(outcome.touched_elements[at])
        if state.elements.status[element] == OPENED:
            state.elements.status[element] = STORED
            recording.keep_checksum(state, element)
        else:
            recording.free_element(state, element)
    for at in range(outcome.tally[TOUCHED]):
        slot = wide(outcome.touched[at])
        if touched.is_ghost(state.windows.status, slot):
            bookkeeping.free(state, slot)
        else:
            recording.settle_window(state, slot)
